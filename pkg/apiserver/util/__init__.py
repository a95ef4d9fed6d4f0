"""Provide utilities of the API server library.

Go: k8s.io/apiserver/pkg/util
"""
