"""What Kubernetes shares beside its own libraries.

Go: k8s.io/utils
"""
