"""Helpers about placing pods on nodes.

Go: k8s.io/component-helpers/scheduling
"""
