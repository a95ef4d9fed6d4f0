"""Provide the listers of node.k8s.io.

Go: k8s.io/client-go/listers/node
"""
