"""Provide the informers of the core API group.

Go: k8s.io/client-go/informers/core
"""
