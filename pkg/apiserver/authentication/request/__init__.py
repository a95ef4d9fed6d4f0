"""Provide methods to find out who sent a request, one module for each.

Go: k8s.io/apiserver/pkg/authentication/request
"""
