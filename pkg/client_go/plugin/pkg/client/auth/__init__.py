"""Provide the authentication plugins of the API client."""
