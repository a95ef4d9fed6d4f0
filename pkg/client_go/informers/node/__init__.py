"""Provide the informers of node.k8s.io.

Go: k8s.io/client-go/informers/node
"""
