"""Authenticate tokens and authorize users with the help of another server.

Go: k8s.io/apiserver/plugin/pkg
"""
