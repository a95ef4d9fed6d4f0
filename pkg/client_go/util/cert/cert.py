"""Generate self-signed certificates.

Go: k8s.io/client-go/util/cert/cert.go
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pkg.client_go.util import keyutil
from pkg.client_go.util.cert import pem
from pkg.client_go.util.cert.csr import CertificateRequest, IPAddress, subject_name

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa

_MAX_AGE = datetime.timedelta(days=365)
# The certificate becomes valid this long before its creation, so that machines whose clocks are slow accept it.
_CLOCK_SKEW = datetime.timedelta(hours=1)


def generate_self_signed_cert_key(
    host: str, alternate_ips: Sequence[IPAddress] = (), alternate_dns: Sequence[str] = ()
) -> tuple[bytes, bytes]:
    """Return a PEM certificate and key for serving as `host`, a name or an IP, for one year.

    The PEM data also contains the certificate of the authority that signs it; the authority's key is discarded.
    """
    from cryptography.hazmat.primitives.asymmetric import rsa

    # time of day: the time becomes part of the certificate.
    valid_from = datetime.datetime.now(datetime.UTC) - _CLOCK_SKEW
    made = int(datetime.datetime.now(datetime.UTC).timestamp())
    ca_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ca_name = subject_name(CertificateRequest(f"{host}-ca@{made}"))
    ca_builder = _builder(ca_name, ca_name, ca_key.public_key(), valid_from)
    ca_cert = _with_usages(ca_builder, ca_key.public_key(), ca=True).sign(ca_key, _sha256())

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = subject_name(CertificateRequest(f"{host}@{made}"))
    builder = _builder(name, ca_name, key.public_key(), valid_from)
    builder = builder.add_extension(_alternative_names(host, alternate_ips, alternate_dns), critical=False)
    cert = _with_usages(builder, ca_key.public_key(), ca=False).sign(ca_key, _sha256())
    return pem.encode_certificates(cert, ca_cert), keyutil.marshal_private_key_to_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: rsa.RSAPublicKey, valid_from: datetime.datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid_from)
        .not_valid_after(valid_from + _MAX_AGE)
    )


def _alternative_names(
    host: str, alternate_ips: Sequence[IPAddress], alternate_dns: Sequence[str]
) -> x509.SubjectAlternativeName:
    from cryptography import x509

    dns_names, ips = list(alternate_dns), list(alternate_ips)
    try:
        ips.insert(0, ipaddress.ip_address(host))
    except ValueError:
        dns_names.insert(0, host)
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names.extend(x509.IPAddress(ip) for ip in ips)
    return x509.SubjectAlternativeName(names)


def _with_usages(
    builder: x509.CertificateBuilder, ca_public_key: rsa.RSAPublicKey, ca: bool
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usage = x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=ca,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if ca:
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_public_key), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public_key)
    server_auth = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return builder.add_extension(authority, critical=False).add_extension(server_auth, critical=False)


def _sha256() -> hashes.SHA256:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()
