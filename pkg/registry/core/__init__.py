"""Provide the parts for the core API group.

Go: pkg/registry/core
"""
