"""Provide what all components that handle resource claims share.

Go: k8s.io/dynamic-resource-allocation
"""
