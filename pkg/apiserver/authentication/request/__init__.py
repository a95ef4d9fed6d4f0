"""Ways to see from a request who sent it: one module for each.

Go: k8s.io/apiserver/pkg/authentication/request
"""
