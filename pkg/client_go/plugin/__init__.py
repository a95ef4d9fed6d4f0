"""Plugins of the client."""
