"""Encoding and decoding of API objects."""
