"""What is made of bearer tokens.

Go: k8s.io/apiserver/pkg/authentication/token
"""
