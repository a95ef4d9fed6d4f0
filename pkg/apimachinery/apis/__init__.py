"""Provide the API groups of the machinery itself."""
