"""The API of authorization."""
