"""Provide helpers that belong to no component.

Go: pkg/util
"""
