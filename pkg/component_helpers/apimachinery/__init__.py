"""Helpers for what any component of a cluster does with the API server.

Go: k8s.io/component-helpers/apimachinery
"""
