"""What somebody may do.

Go: k8s.io/apiserver/pkg/authorization
"""
