"""Serve pages and health checks over HTTP.

Go: k8s.io/apiserver/pkg/server
"""
