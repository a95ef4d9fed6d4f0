"""Provide the listers of the core API group.

Go: k8s.io/client-go/listers/core
"""
