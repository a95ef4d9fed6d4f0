"""The API of dynamic resources."""
