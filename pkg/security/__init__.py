"""Provide the security facilities of the node.

Go: pkg/security
"""
