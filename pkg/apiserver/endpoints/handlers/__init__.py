"""Provide helpers for HTTP handlers.

Go: k8s.io/apiserver/pkg/endpoints/handlers
"""
