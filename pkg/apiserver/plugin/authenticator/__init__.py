"""Provide authenticators that ask another server.

Go: k8s.io/apiserver/plugin/pkg/authenticator
"""
