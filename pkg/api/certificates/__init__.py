"""Define the certificates API."""
