"""Provide modules that handle bearer tokens.

Go: k8s.io/apiserver/pkg/authentication/token
"""
