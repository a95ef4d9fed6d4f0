"""Listers of the API group storage.k8s.io.

Go: k8s.io/client-go/listers/storage
"""
