"""The API of storage."""
