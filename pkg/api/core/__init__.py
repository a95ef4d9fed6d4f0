"""Define the core API group."""
