"""Listers of the API group that has no name.

Go: k8s.io/client-go/listers/core
"""
