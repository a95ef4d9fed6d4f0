"""Defaults and validation of the core API group, as far as pods of the kubelet's own sources need them.

Go: pkg/apis/core
"""
