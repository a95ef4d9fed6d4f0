"""Define the authentication API."""
