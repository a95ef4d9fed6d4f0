"""Informers of the group certificates.k8s.io.

Go: k8s.io/client-go/informers/certificates
"""
