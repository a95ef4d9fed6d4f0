"""Provide what every Kubernetes component shares.

Go: k8s.io/component-base
"""
