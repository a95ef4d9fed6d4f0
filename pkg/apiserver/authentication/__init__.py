"""Authenticate requests: find out who sent them.

Go: k8s.io/apiserver/pkg/authentication
"""
