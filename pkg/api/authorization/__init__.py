"""Define the authorization API."""
