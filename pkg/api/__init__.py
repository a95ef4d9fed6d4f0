"""Types of the Kubernetes API, and helpers over them."""
