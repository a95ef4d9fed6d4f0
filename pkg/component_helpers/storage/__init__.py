"""Provide helpers for storage that several components share.

Go: k8s.io/component-helpers/storage
"""
