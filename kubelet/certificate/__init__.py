"""Manage the kubelet's client certificate for the API server and its serving certificate.

Go: pkg/kubelet/certificate
"""

from kubelet.certificate.expiry import ExpiryWarning
from kubelet.certificate.kubelet import (
    KubeletServerCertificateDynamicFileManager,
    new_kubelet_client_certificate_manager,
    new_kubelet_server_certificate_manager,
    register_client_ttl,
)
from kubelet.certificate.transport import update_transport

__all__ = [
    "ExpiryWarning",
    "KubeletServerCertificateDynamicFileManager",
    "new_kubelet_client_certificate_manager",
    "new_kubelet_server_certificate_manager",
    "register_client_ttl",
    "update_transport",
]
