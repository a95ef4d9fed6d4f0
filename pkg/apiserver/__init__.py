"""Provide the parts of the API server library that the kubelet uses.

Go: k8s.io/apiserver
"""
