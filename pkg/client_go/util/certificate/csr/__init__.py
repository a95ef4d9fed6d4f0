"""Request a certificate from the API server, and wait until it is issued.

Go: k8s.io/client-go/util/certificate/csr
"""

from pkg.client_go.util.certificate.csr.csr import (
    CertificateSigningRequestError,
    digested_name,
    duration_to_expiration_seconds,
    request_certificate,
    wait_for_certificate,
)

__all__ = [
    "CertificateSigningRequestError",
    "digested_name",
    "duration_to_expiration_seconds",
    "request_certificate",
    "wait_for_certificate",
]
