"""Define the types of the Kubernetes API, and helpers for them."""
