"""Helpers for what any component of a cluster does with the API server.

Go: staging/src/k8s.io/component-helpers/apimachinery
"""
