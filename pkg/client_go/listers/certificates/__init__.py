"""Provide the listers of certificates.k8s.io.

Go: k8s.io/client-go/listers/certificates
"""
