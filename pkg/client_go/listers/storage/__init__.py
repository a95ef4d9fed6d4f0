"""Provide the listers of storage.k8s.io.

Go: k8s.io/client-go/listers/storage
"""
