"""Who asks.

Go: k8s.io/apiserver/pkg/authentication
"""
