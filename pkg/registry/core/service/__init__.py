"""Of services. Go: pkg/registry/core/service"""
