"""Typed readers of what informers have stored. They answer from memory and never ask the API server.

Go: k8s.io/client-go/listers
"""
