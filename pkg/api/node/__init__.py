"""The API of node."""
