"""Define the policy API."""
