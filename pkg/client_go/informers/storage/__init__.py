"""Provide the informers of storage.k8s.io.

Go: k8s.io/client-go/informers/storage
"""
