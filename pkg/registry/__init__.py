"""Provide the parts of the API server's registry that a kubelet needs.

Go: pkg/registry
"""
