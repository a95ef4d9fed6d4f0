"""Certificates that are read again when their files change.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates
"""

from pkg.apiserver.server.dynamiccertificates.dynamic_serving_content import DynamicCertKeyPairContent

__all__ = ["DynamicCertKeyPairContent"]
