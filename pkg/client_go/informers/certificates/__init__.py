"""Provide the informers of certificates.k8s.io.

Go: k8s.io/client-go/informers/certificates
"""
