"""Authorities, certificates, and stand-ins for managers, for tests.

Go: k8s.io/client-go/util/certificate/certificate_manager_test.go (fakeStore, newCertificateData)
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pkg.client_go.util import cert as certutil
from pkg.client_go.util import certificate, keyutil
from pkg.client_go.util.keyutil import pem

if TYPE_CHECKING:
    from cryptography import x509

HOUR = datetime.timedelta(hours=1)


def now() -> datetime.datetime:
    """The time in whole seconds, as certificates have it."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


class Authority:
    """Signs whatever it is asked to."""

    def __init__(self, name: str = "test-ca") -> None:
        from cryptography import x509

        self._key = keyutil.parse_private_key_pem(keyutil.make_elliptic_private_key_pem())
        self._name = certutil.CertificateRequest(name)
        subject = certutil.subject_name(self._name)
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(subject, self._key.public_key(), now() - HOUR, now() + 24 * HOUR)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(basic, critical=True).add_extension(identifier, critical=False)
        self.cert_pem = certutil.encode_certificates(builder.sign(self._key, _sha256()))

    def issue(
        self,
        common_name: str,
        organization: Sequence[str] = (),
        *,
        dns_names: Sequence[str] = (),
        ips: Sequence[str] = (),
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> tuple[bytes, bytes]:
        """A certificate for a new key and that key, as PEM data; by default good from an hour ago for two hours."""
        key_pem = keyutil.make_elliptic_private_key_pem()
        addresses = tuple(ipaddress.ip_address(ip) for ip in ips)
        request = certutil.make_csr(
            keyutil.parse_private_key_pem(key_pem), common_name, tuple(organization), tuple(dns_names), addresses
        )
        return self.sign(request, not_before, not_after), key_pem

    def pair(self, common_name: str, organization: Sequence[str] = (), **options: object) -> certificate.Certificate:
        """As issue, loaded."""
        return certificate.x509_key_pair(*self.issue(common_name, organization, **options))  # type: ignore[arg-type]

    def sign(
        self,
        csr_pem: bytes,
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> bytes:
        """The PEM certificate for a PEM request, its alternative names included."""
        from cryptography import x509

        request = x509.load_der_x509_csr(next(pem.blocks(csr_pem)).data)
        builder = self._builder(
            request.subject, request.public_key(), not_before or now() - HOUR, not_after or now() + HOUR
        )
        for extension in request.extensions:
            builder = builder.add_extension(extension.value, critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        return certutil.encode_certificates(builder.sign(self._key, _sha256()))

    def _builder(
        self,
        subject: x509.Name,
        public_key: object,
        not_before: datetime.datetime,
        not_after: datetime.datetime,
    ) -> x509.CertificateBuilder:
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(certutil.subject_name(self._name))
            .public_key(public_key)  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_after)
        )


def _sha256() -> hashes.SHA256:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


class FakeStore:
    """Keeps one pair in memory."""

    def __init__(self, cert: certificate.Certificate | None = None) -> None:
        self.cert = cert
        self.err: Exception | None = None
        self.updates = 0

    def current(self) -> certificate.Certificate:
        if self.cert is None:
            raise certificate.NoCertKeyError("there is no certificate yet")
        return self.cert

    def update(self, cert_data: bytes, key_data: bytes) -> certificate.Certificate:
        if self.err is not None:
            raise self.err
        self.updates += 1
        self.cert = certificate.x509_key_pair(cert_data, key_data)
        return self.cert


class FakeManager:
    """Has the certificate that the test gives it."""

    def __init__(self, cert: certificate.Certificate | None = None, healthy: bool = False) -> None:
        self.cert = cert
        self.healthy = healthy

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def current(self) -> certificate.Certificate | None:
        return self.cert

    def server_healthy(self) -> bool:
        return self.healthy


if TYPE_CHECKING:
    from cryptography.hazmat.primitives import hashes

    def _is_store(fake: FakeStore) -> certificate.Store:
        return fake

    def _is_manager(fake: FakeManager) -> certificate.Manager:
        return fake
