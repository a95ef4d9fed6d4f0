"""Provide the plugins of the API client."""
