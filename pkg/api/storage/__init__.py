"""Define the storage API."""
