"""The API of authentication."""
