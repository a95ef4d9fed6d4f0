"""Ways to ask somebody else who a token stands for and what a user may do.

Go: k8s.io/apiserver/plugin/pkg
"""
