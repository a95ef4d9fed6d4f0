"""Provide helpers for the tasks that any component performs with the API server.

Go: k8s.io/component-helpers/apimachinery
"""
