"""Provide the parts for services.

Go: pkg/registry/core/service
"""
