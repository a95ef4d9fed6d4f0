"""Make certificate signing requests (PKCS #10).

Go: k8s.io/client-go/util/cert/csr.go
"""

from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg.client_go.util import keyutil

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(slots=True, frozen=True)
class CertificateRequest:
    """Describe the names that a certificate must have.

    Go: x509.CertificateRequest, used as a template
    """

    common_name: str
    organization: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()


def make_csr(
    private_key: keyutil.PrivateKey,
    common_name: str,
    organization: tuple[str, ...] = (),
    dns_sans: tuple[str, ...] = (),
    ip_sans: tuple[IPAddress, ...] = (),
) -> bytes:
    """Return a PEM request, signed with the key."""
    return make_csr_from_template(private_key, CertificateRequest(common_name, organization, dns_sans, ip_sans))


def make_csr_from_template(private_key: keyutil.PrivateKey, template: CertificateRequest) -> bytes:
    """Return a PEM request, signed with the key; raise ValueError if no certificate can hold the template."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    builder = x509.CertificateSigningRequestBuilder().subject_name(subject_name(template))
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in template.dns_names]
    names.extend(x509.IPAddress(ip) for ip in template.ip_addresses)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    request = builder.sign(private_key, _signature_hash(private_key))
    return request.public_bytes(serialization.Encoding.PEM)


def subject_name(template: CertificateRequest) -> x509.Name:
    """Return the subject in the order of Go's encoding: all organizations as one part, then the common name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = []
    if template.organization:
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in template.organization]
        parts.append(x509.RelativeDistinguishedName(organizations))
    if template.common_name:
        with long_names_allowed():
            common_name = x509.NameAttribute(NameOID.COMMON_NAME, template.common_name, _validate=False)
        parts.append(x509.RelativeDistinguishedName([common_name]))
    return x509.Name(parts)


@contextmanager
def long_names_allowed() -> Iterator[None]:
    """Keep the library from warning about names of more than 64 characters.

    The standard's limit for common names is lower than Kubernetes' limit for node names, and nothing enforces it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Attribute's length must be")
        yield


def _signature_hash(private_key: keyutil.PrivateKey) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
    """Return a hash that fits the key's length, or None for kinds of keys that determine their own hash."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    match private_key:
        case rsa.RSAPrivateKey():
            size, steps = private_key.key_size, (3072, 4096)
        case ec.EllipticCurvePrivateKey():
            size, steps = private_key.curve.key_size, (384, 521)
        case _:
            return None
    if size >= steps[1]:
        return hashes.SHA512()
    return hashes.SHA384() if size >= steps[0] else hashes.SHA256()
