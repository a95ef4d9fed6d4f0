"""Provide the utilities that Kubernetes keeps outside of its own libraries.

Go: k8s.io/utils
"""
