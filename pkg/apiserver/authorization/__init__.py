"""Authorize requests: decide whether a user may do something.

Go: k8s.io/apiserver/pkg/authorization
"""
