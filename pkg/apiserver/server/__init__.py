"""Serving over HTTP. Go: k8s.io/apiserver/pkg/server"""
