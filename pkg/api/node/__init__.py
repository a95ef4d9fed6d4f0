"""Define the node API."""
