"""Read and write certificates and certificate requests, as PEM data and in files.

Go: k8s.io/client-go/util/cert
"""

from pkg.client_go.util.cert.cert import generate_self_signed_cert_key
from pkg.client_go.util.cert.csr import (
    CertificateRequest,
    IPAddress,
    long_names_allowed,
    make_csr,
    make_csr_from_template,
    subject_name,
)
from pkg.client_go.util.cert.io import can_read_cert_and_key, certs_from_file, write_cert
from pkg.client_go.util.cert.pem import (
    CERTIFICATE_BLOCK_TYPE,
    CERTIFICATE_REQUEST_BLOCK_TYPE,
    encode_certificates,
    parse_certs_pem,
)

__all__ = [
    "CERTIFICATE_BLOCK_TYPE",
    "CERTIFICATE_REQUEST_BLOCK_TYPE",
    "CertificateRequest",
    "IPAddress",
    "can_read_cert_and_key",
    "certs_from_file",
    "encode_certificates",
    "generate_self_signed_cert_key",
    "long_names_allowed",
    "make_csr",
    "make_csr_from_template",
    "parse_certs_pem",
    "subject_name",
    "write_cert",
]
