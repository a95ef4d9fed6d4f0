"""Security facilities of the node.

Go: pkg/security
"""
