"""Helpers around logging.

Go: k8s.io/component-base/logs
"""
