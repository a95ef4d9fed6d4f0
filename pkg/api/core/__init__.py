"""The core API group."""
