"""Define the API of dynamic resource allocation."""
