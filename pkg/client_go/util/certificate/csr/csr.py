"""Create a certificate signing request, and wait until its certificate is issued.

Go: k8s.io/client-go/util/certificate/csr/csr.go

Only certificates.k8s.io/v1 is supported, which every API server since 1.19 has; Go also tries v1beta1.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.certificates import v1 as certificatesv1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import fields, types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.client_go.util.keyutil import pem
from pkg.golang import x509 as golangx509

if TYPE_CHECKING:
    from cryptography import x509

    from pkg.client_go import kubernetes

# `_RETRY_PERIOD` is the pause, in seconds, after a failed list or watch.
_RETRY_PERIOD = 1.0
# `_TICK` is the interval, in seconds, at which while_waiting is called.
_TICK = 1.0


class CertificateSigningRequestError(Exception):
    """Signal that a request was denied, failed or deleted, or was replaced by another one of the same name."""


def request_certificate(
    ctx: golang.Context,
    client: kubernetes.Interface,
    csr_data: bytes,
    name: str,
    signer_name: str,
    requested_duration: float | None,
    usages: list[str],
    private_key: keyutil.PrivateKey,
) -> tuple[str, types.UID]:
    """Create a request, or find the one that an earlier run created under this name; return its name and UID.

    If the name is empty, the server chooses one. `requested_duration` is the desired lifetime of the certificate, in
    seconds; signers may ignore it. Raise the API server's error, or ValueError if the request of this name has other
    contents or another key.
    """
    request = certificatesv1.CertificateSigningRequest(
        api_version="certificates.k8s.io/v1",
        kind="CertificateSigningRequest",
        metadata=metav1.ObjectMeta(name=name, generate_name="" if name else "csr-"),
        spec=certificatesv1.CertificateSigningRequestSpec(request=csr_data, usages=usages, signer_name=signer_name),
    )
    if requested_duration is not None:
        request.spec.expiration_seconds = duration_to_expiration_seconds(requested_duration)
    requests = client.certificates_v1.certificate_signing_requests()
    try:
        created = requests.create(ctx, request)
    except apierrors.StatusError as err:
        if not name or not apierrors.is_already_exists(err):
            raise _format_error("cannot create certificate signing request", err) from err
    else:
        klog.v(2).info_s("Certificate signing request created", csr=created.metadata.name)
        return created.metadata.name, created.metadata.uid

    klog.info_s("csr for this node already exists, reusing")
    try:
        existing = requests.get(ctx, name)
    except apierrors.StatusError as err:
        raise _format_error("cannot retrieve certificate signing request", err) from err
    try:
        _ensure_compatible(existing, request, private_key)
    except ValueError as err:
        raise ValueError(f"retrieved csr is not compatible: {err}") from err
    klog.info_s("csr for this node is still valid")
    return existing.metadata.name, existing.metadata.uid


def digested_name(prefix: str, private_key: keyutil.PrivateKey, parts: Iterable[str]) -> str:
    """Return a name for a request that is the same for the same key and parts.

    The digest cannot cover the request itself, because its signature differs each time. The delimiter is not a base64
    character, so different lists of parts never give the same stream.

    Go: bootstrap.digestedName
    """
    from cryptography.hazmat.primitives import serialization

    public_key = private_key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashlib.new("sha512_256")
    for part in (public_key, *(text.encode() for text in parts)):
        digest.update(_base64(part) + b"|")
    return prefix + _base64(digest.digest()).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def duration_to_expiration_seconds(duration: float) -> int:
    return int(duration)


def wait_for_certificate(
    ctx: golang.Context,
    client: kubernetes.Interface,
    req_name: str,
    req_uid: types.UID,
    clock: clock_.Clock | None = None,
    while_waiting: Callable[[], object] | None = None,
) -> bytes:
    """Return the PEM certificate of the request once it is approved and issued.

    Retry an unreachable API server until ctx ends. `while_waiting` is called about once per second, and may end ctx.
    Raise CertificateSigningRequestError, TimeoutError after ctx's deadline, or Canceled.
    """
    waiter = _Waiter(ctx, client, req_name, req_uid, clock or clock_.RealClock(), while_waiting or (lambda: None))
    while True:
        if (certificate := waiter.list_and_watch()) is not None:
            return certificate
        waiter.pause()


class _Waiter:
    """List and watch one request.

    Go: k8s.io/client-go/tools/watch/until.go, UntilWithSync
    """

    def __init__(
        self,
        ctx: golang.Context,
        client: kubernetes.Interface,
        req_name: str,
        req_uid: types.UID,
        clock: clock_.Clock,
        while_waiting: Callable[[], object],
    ) -> None:
        self._ctx = ctx
        self._requests = client.certificates_v1.certificate_signing_requests()
        self._name = req_name
        self._uid = req_uid
        self._clock = clock
        self._while_waiting = while_waiting
        self._field_selector = str(fields.one_term_equal_selector("metadata.name", req_name))
        self._seen = False

    def list_and_watch(self) -> bytes | None:
        """Return the certificate, or None if the watch has ended or could not start."""
        try:
            found = self._requests.list(self._ctx, metav1.ListOptions(field_selector=self._field_selector))
            if not found.items and not found.undecodable and self._seen:
                raise CertificateSigningRequestError(f'csr "{self._name}" was deleted')
            for request in found.items:
                if certificate := self._check(request):
                    return certificate
            options = metav1.ListOptions(
                field_selector=self._field_selector,
                resource_version=found.metadata.resource_version,
                allow_watch_bookmarks=True,
            )
            watcher = self._requests.watch(self._ctx, options)
        except (apierrors.StatusError, OSError, ValueError, golang.ThreadError) as err:
            self._raise_if_done()
            klog.v(2).info_s("Error fetching v1 certificate signing request", err=err)
            return None
        except golang.ContextError:
            self._raise_if_done()
            raise
        try:
            return self._follow(watcher)
        finally:
            watcher.stop()

    def _follow(self, watcher: watch.Interface[certificatesv1.CertificateSigningRequest]) -> bytes | None:
        results, ticker = watcher.result_chan(), self._clock.new_ticker(_TICK)
        try:
            while True:
                taken = golang.select(self._ctx.done(), results, ticker.channel).took(results)
                self._raise_if_done()
                if taken is None:
                    self._while_waiting()
                    continue
                if not taken.ok:
                    return None
                event = taken.value
                if isinstance(event.object, watch.Undecodable):
                    continue  # A later version of the request may be decodable.
                match event.type:
                    case watch.ADDED | watch.MODIFIED:
                        if certificate := self._check(event.object):
                            return certificate
                    case watch.DELETED:
                        raise CertificateSigningRequestError(f'csr "{self._name}" was deleted')
                    case watch.ERROR:
                        return None  # The next list shows what the watch missed.
        finally:
            ticker.stop()

    def _check(self, request: certificatesv1.CertificateSigningRequest) -> bytes | None:
        """Return the certificate if it was issued; raise CertificateSigningRequestError if it never will be."""
        self._seen = True
        if request.metadata.uid != self._uid:
            raise CertificateSigningRequestError(f'csr "{self._name}" changed UIDs')
        approved = False
        for condition in request.status.conditions:
            told = f"reason: {condition.reason}, message: {condition.message}"
            match condition.type:
                case certificatesv1.CERTIFICATE_DENIED:
                    raise CertificateSigningRequestError(f"certificate signing request is denied, {told}")
                case certificatesv1.CERTIFICATE_FAILED:
                    raise CertificateSigningRequestError(f"certificate signing request failed, {told}")
                case certificatesv1.CERTIFICATE_APPROVED:
                    approved = True
        if not approved:
            return None
        if request.status.certificate:
            klog.v(2).info_s("Certificate signing request is issued", csr=self._name)
            return request.status.certificate
        klog.v(2).info_s("Certificate signing request is approved, waiting to be issued", csr=self._name)
        return None

    def pause(self) -> None:
        """Pause before the next attempt, so that a server that ends each watch at once is not flooded."""
        self._while_waiting()
        wait.sleep(self._ctx, _RETRY_PERIOD, self._clock)
        self._raise_if_done()

    def _raise_if_done(self) -> None:
        match self._ctx.err():
            case None:
                return
            case golang.DeadlineExceeded() as err:
                raise TimeoutError("timed out waiting for the condition") from err
            case err:
                raise err


def _ensure_compatible(
    new: certificatesv1.CertificateSigningRequest,
    orig: certificatesv1.CertificateSigningRequest,
    private_key: keyutil.PrivateKey,
) -> None:
    """Raise ValueError unless `new`, which is on the server, has the same contents and key as `orig`."""
    new_csr, found = _parse_csr(new.spec.request, "new")
    _, wanted = _parse_csr(orig.spec.request, "original")
    if found != wanted:
        raise ValueError(f"csr subjects differ: new: {found.rfc4514_string()}, orig: {wanted.rfc4514_string()}")
    if new.spec.signer_name and orig.spec.signer_name and new.spec.signer_name != orig.spec.signer_name:
        raise ValueError(f'csr signerNames differ: new "{new.spec.signer_name}", orig: "{orig.spec.signer_name}"')
    if not new_csr.is_signature_valid or new_csr.public_key() != private_key.public_key():
        raise ValueError("error validating signature new CSR against old key: it is of another key")
    if not new.status.certificate:
        return
    try:
        certs = certutil.parse_certs_pem(new.status.certificate)
    except ValueError as err:
        raise ValueError(f"error parsing signed certificate for CSR: {err}") from err
    for cert in certs:
        if datetime.datetime.now(datetime.UTC) > cert.not_valid_after_utc:
            raise ValueError(f"one of the certificates for the CSR has expired: {cert.not_valid_after_utc}")


def _parse_csr(pem_data: bytes | None, which: str) -> tuple[x509.CertificateSigningRequest, x509.Name]:
    """Return the request and its subject; raise ValueError if the data cannot be parsed."""
    from cryptography import x509

    block = next(pem.blocks(pem_data or b""), None)
    if block is None or block.type != certutil.CERTIFICATE_REQUEST_BLOCK_TYPE:
        raise ValueError(f"unable to parse {which} csr: PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_der_x509_csr(block.data)
        request.public_key()
        with certutil.long_names_allowed():
            return request, request.subject
    except golangx509.decoding_errors() as err:
        raise ValueError(f"unable to parse {which} csr: {err}") from err


def _format_error(what: str, err: apierrors.StatusError) -> apierrors.StatusError:
    """Return the same error, with the attempted action in front of its message."""
    status = metav1.deepcopy(err.status)
    status.message = f"{what}: {status.message}"
    return apierrors.StatusError(status)
