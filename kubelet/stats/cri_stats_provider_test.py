"""Tests of the figures that the runtime knows."""
