"""Provide helpers for API types that several components share.

Go: k8s.io/component-helpers
"""
