"""Encode and decode API objects."""
