"""Provide what handles bearer tokens.

Go: k8s.io/apiserver/pkg/authentication/token
"""
