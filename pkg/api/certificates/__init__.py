"""The API of certificates."""
