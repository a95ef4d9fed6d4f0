"""Provide the machinery that all API types share."""
