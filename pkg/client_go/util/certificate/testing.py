"""Provide certificate authorities, certificates and fake managers for tests.

Go: k8s.io/client-go/util/certificate/certificate_manager_test.go (fakeStore, newCertificateData)
"""

from __future__ import annotations

import datetime
import ipaddress
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pkg import golang
from pkg.api.certificates import v1 as certificatesv1
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery import watch as watchapi
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes import typed
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import certificate, keyutil
from pkg.client_go.util.keyutil import pem

if TYPE_CHECKING:
    from cryptography import x509

HOUR = datetime.timedelta(hours=1)


def now() -> datetime.datetime:
    """Return the time in whole seconds, which is the resolution of certificates."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


class Authority:
    """Sign every certificate request."""

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
        """Return a certificate and its new key as PEM data; by default it is valid from an hour ago for two hours."""
        key_pem = keyutil.make_elliptic_private_key_pem()
        addresses = tuple(ipaddress.ip_address(ip) for ip in ips)
        request = certutil.make_csr(
            keyutil.parse_private_key_pem(key_pem), common_name, tuple(organization), tuple(dns_names), addresses
        )
        return self.sign(request, not_before, not_after), key_pem

    def pair(self, common_name: str, organization: Sequence[str] = (), **options: object) -> certificate.Certificate:
        """Return the result of issue as a loaded pair."""
        return certificate.x509_key_pair(*self.issue(common_name, organization, **options))  # type: ignore[arg-type]

    def sign(
        self,
        csr_pem: bytes,
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> bytes:
        """Return the PEM certificate for a PEM request, including its alternative names."""
        from cryptography import x509

        request = x509.load_der_x509_csr(next(pem.blocks(csr_pem)).data)
        with certutil.long_names_allowed():
            subject = request.subject
        builder = self._builder(subject, request.public_key(), not_before or now() - HOUR, not_after or now() + HOUR)
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
    """Keep one pair in memory."""

    def __init__(self, cert: certificate.Certificate | None = None) -> None:
        self.cert = cert
        self.err: Exception | None = None
        self.updates = 0
        self.pending: bytes | None = None

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

    def pending_key(self) -> bytes | None:
        return self.pending

    def set_pending_key(self, key_data: bytes | None) -> None:
        self.pending = key_data


class FakeSigner:
    """Simulate the API server's certificate requests together with their approver and signer.

    All methods are thread-safe. `client` is the fake API client. Each request is granted at once, unless `approve` is
    False.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.approve = True
        self.not_before: datetime.datetime | None = None
        self.not_after: datetime.datetime | None = None
        self.created: golang.Channel[str] = golang.Channel(100)
        """The channel receives the name of each request after its creation."""
        self.watched: golang.Channel[None] = golang.Channel(100)
        """The channel receives a value whenever a watch starts."""
        self.errors: dict[str, list[Exception]] = {"create": [], "get": [], "list": [], "watch": []}
        """The next calls of each verb raise these errors."""
        self._lock = threading.Lock()  # The lock guards _requests, _watchers and _version.
        self._requests: dict[str, certificatesv1.CertificateSigningRequest] = {}
        self._watchers: list[_Watcher] = []
        self._version = 0
        group = SimpleNamespace(certificate_signing_requests=lambda: self)
        self.client: Any = SimpleNamespace(certificates_v1=group, close=lambda: None)

    def requests(self) -> list[certificatesv1.CertificateSigningRequest]:
        with self._lock:
            return list(self._requests.values())

    def put(self, request: certificatesv1.CertificateSigningRequest) -> None:
        """Add or replace a request."""
        with self._lock:
            self._put_locked(request)

    def grant(self, name: str) -> None:
        """Approve a request and issue its certificate."""
        request = v1.deepcopy(self._requests[name])
        request.status.conditions = [_condition(certificatesv1.CERTIFICATE_APPROVED)]
        request.status.certificate = self.authority.sign(request.spec.request or b"", self.not_before, self.not_after)
        self.put(request)

    def condition(self, name: str, condition: str) -> None:
        """Set a condition and change nothing else."""
        request = v1.deepcopy(self._requests[name])
        request.status.conditions = [_condition(condition)]
        self.put(request)

    def remove(self, name: str) -> None:
        with self._lock:
            request = self._requests.pop(name)
            self._tell_locked(watchapi.Event(watchapi.DELETED, request))

    def spoil(self, name: str) -> None:
        """Send the watches a version that cannot be decoded."""
        event = watchapi.Event(watchapi.MODIFIED, watchapi.Undecodable("", name, "1"))
        with self._lock:
            for watcher in self._watchers:
                watcher.channel.send(event)  # type: ignore[arg-type]

    def cut_watches(self) -> None:
        """End all watches, as a server does from time to time."""
        with self._lock:
            for watcher in self._watchers:
                watcher.channel.close()
            self._watchers.clear()

    def create(
        self, ctx: golang.Context, obj: certificatesv1.CertificateSigningRequest
    ) -> certificatesv1.CertificateSigningRequest:
        self._raise("create")
        request = v1.deepcopy(obj)
        with self._lock:
            if request.metadata.name in self._requests:
                raise apierrors.new_already_exists("certificatesigningrequests", request.metadata.name)
            number = len(self._requests) + 1
            request.metadata.name = request.metadata.name or f"{request.metadata.generate_name}{number}"
            request.metadata.uid = types.UID(f"uid-{number}")
            self._put_locked(request)
        if self.approve:
            self.grant(request.metadata.name)
        self.created.send(request.metadata.name)
        return request

    def get(self, ctx: golang.Context, name: str) -> certificatesv1.CertificateSigningRequest:
        self._raise("get")
        return self._requests[name]

    def list(
        self, ctx: golang.Context, options: metav1.ListOptions
    ) -> typed.ResourceList[certificatesv1.CertificateSigningRequest]:
        self._raise("list")
        name = options.field_selector.removeprefix("metadata.name=")
        with self._lock:
            items = [self._requests[name]] if name in self._requests else []
            version = f"{self._version:06}"
        meta = metav1.ListMeta(resource_version=version)
        return typed.ResourceList(meta, items)

    def watch(self, ctx: golang.Context, options: metav1.ListOptions) -> _Watcher:
        self._raise("watch")
        watcher = _Watcher(options.field_selector.removeprefix("metadata.name="))
        with self._lock:
            request = self._requests.get(watcher.name)
            if request is not None and request.metadata.resource_version > options.resource_version:
                watcher.channel.send(watchapi.Event(watchapi.MODIFIED, request))
            self._watchers.append(watcher)
        self.watched.send(None)
        return watcher

    def _raise(self, verb: str) -> None:
        if self.errors[verb]:
            raise self.errors[verb].pop(0)

    def _put_locked(self, request: certificatesv1.CertificateSigningRequest) -> None:
        self._version += 1
        request.metadata.resource_version = f"{self._version:06}"
        self._requests[request.metadata.name] = request
        self._tell_locked(watchapi.Event(watchapi.MODIFIED, request))

    def _tell_locked(self, event: watchapi.Event[certificatesv1.CertificateSigningRequest]) -> None:
        for watcher in self._watchers:
            if watcher.name == event.object.metadata.name:
                watcher.channel.send(event)


class _Watcher:
    def __init__(self, name: str) -> None:
        self.name = name
        self.channel: golang.Channel[watchapi.Event[certificatesv1.CertificateSigningRequest]] = golang.Channel(100)

    def stop(self) -> None:
        pass

    def result_chan(self) -> golang.Channel[watchapi.Event[certificatesv1.CertificateSigningRequest]]:
        return self.channel


def _condition(kind: str) -> certificatesv1.CertificateSigningRequestCondition:
    return certificatesv1.CertificateSigningRequestCondition(
        type=kind, status="True", reason="Because", message="I say"
    )


class FakeCertificateManager:
    """Provide the certificate that the test sets."""

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

    def _is_manager(fake: FakeCertificateManager) -> certificate.Manager:
        return fake
