"""Read and write certificates in PEM data.

Go: k8s.io/client-go/util/cert/pem.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.client_go.util.keyutil import pem
from pkg.golang import x509 as golangx509

if TYPE_CHECKING:
    from cryptography import x509

CERTIFICATE_BLOCK_TYPE = "CERTIFICATE"
CERTIFICATE_REQUEST_BLOCK_TYPE = "CERTIFICATE REQUEST"


def parse_certs_pem(pem_certs: bytes) -> list[x509.Certificate]:
    """Return all certificates in order, without other blocks.

    Raise ValueError if a certificate is invalid or there is none.
    """
    from cryptography import x509

    try:
        certs = [
            x509.load_der_x509_certificate(block.data)
            for block in pem.blocks(pem_certs)
            if block.type == CERTIFICATE_BLOCK_TYPE and not block.has_headers
        ]
    except golangx509.decoding_errors() as err:
        raise ValueError(f"cannot parse the certificate: {err}") from err
    if not certs:
        raise ValueError("data does not contain any valid RSA or ECDSA certificates")
    return certs


def encode_certificates(*certs: x509.Certificate) -> bytes:
    """Return the certificates as consecutive PEM blocks."""
    from cryptography.hazmat.primitives import serialization

    return b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in certs)
