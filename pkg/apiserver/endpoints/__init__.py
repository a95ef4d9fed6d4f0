"""Provide helpers for HTTP endpoints.

Go: k8s.io/apiserver/pkg/endpoints
"""
