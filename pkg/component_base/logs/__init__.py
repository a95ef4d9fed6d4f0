"""Provide helpers for logging.

Go: k8s.io/component-base/logs
"""
