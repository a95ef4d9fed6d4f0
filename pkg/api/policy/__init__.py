"""The API of policy."""
