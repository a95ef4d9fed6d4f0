"""Define the coordination API."""
