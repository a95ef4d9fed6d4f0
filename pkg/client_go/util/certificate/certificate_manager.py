"""Renew a certificate before it expires.

Go: k8s.io/client-go/util/certificate/certificate_manager.go
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pkg import golang, klog
from pkg.api.certificates import v1 as certificates
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.util import wait
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.client_go.util.certificate import csr, tls
from pkg.client_go.util.certificate.certificate_store import NoCertKeyError
from pkg.golang import x509 as golangx509

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# `CERTIFICATE_WAIT_TIMEOUT` is the time, in seconds, that the manager waits for one certificate to be issued before it
# starts another attempt.
CERTIFICATE_WAIT_TIMEOUT = 15 * 60.0
# `_TEMPLATE_PERIOD` is the interval, in seconds, at which the manager checks a dynamic template for changes.
_TEMPLATE_PERIOD = 1.0
# `_MAX_SLEEP` is the longest sleep, in seconds, before the manager reads the time of day again.
_MAX_SLEEP = 60.0

# `_FAILURES` holds the exceptions of a failed renewal. Every other exception is a bug in this program.
_FAILURES = (apierrors.StatusError, csr.CertificateSigningRequestError, OSError, ValueError)

ClientsetFunc = Callable[[tls.Certificate | None], "kubernetes.Interface"]
"""The function makes the client for requests.

Its argument is the current certificate, or None if that has expired.
"""

GetUsages = Callable[[keyutil.PrivateKey | None], list[str]]


def default_kubelet_serving_get_usages(private_key: keyutil.PrivateKey | None) -> list[str]:
    """Return the usages of the kubelet's serving certificate."""
    return _usages(private_key, certificates.USAGE_SERVER_AUTH)


def default_kubelet_client_get_usages(private_key: keyutil.PrivateKey | None) -> list[str]:
    """Return the usages of the kubelet's client certificate."""
    return _usages(private_key, certificates.USAGE_CLIENT_AUTH)


def _usages(private_key: keyutil.PrivateKey | None, auth: str) -> list[str]:
    """Return the usages for a key.

    Only RSA keys encipher session keys, and signers refuse that usage for other keys.
    """
    from cryptography.hazmat.primitives.asymmetric import rsa

    if isinstance(private_key, rsa.RSAPrivateKey):
        return [certificates.USAGE_DIGITAL_SIGNATURE, certificates.USAGE_KEY_ENCIPHERMENT, auth]
    return [certificates.USAGE_DIGITAL_SIGNATURE, auth]


class Manager(Protocol):
    """Define what provides a certificate and renews it in the background."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def current(self) -> tls.Certificate | None:
        """Return the current certificate, or None if there is none yet or it has expired.

        Any thread may call this method.
        """
        ...

    def server_healthy(self) -> bool:
        """Report whether the API server has responded recently, as far as the manager knows.

        Any thread may call this method.
        """
        ...


class Store(Protocol):
    """Define what stores the current certificate with its key."""

    def current(self) -> tls.Certificate:
        """Return the current pair; raise NoCertKeyError if there is none."""
        ...

    def update(self, cert_data: bytes, key_data: bytes) -> tls.Certificate:
        """Make this PEM pair the current one; raise OSError or ValueError on failure."""
        ...

    def pending_key(self) -> bytes | None:
        """Return the PEM key of a pending request, or None."""
        ...

    def set_pending_key(self, key_data: bytes | None) -> None:
        """Keep this key across restarts, or forget it if it is None; raise OSError on failure."""
        ...


class Histogram(Protocol):
    def observe(self, value: float) -> None: ...


class Counter(Protocol):
    def inc(self) -> None: ...


class Observer(Protocol):
    """Define what the manager's thread reports about renewals."""

    def waiting(self, current: tls.Certificate | None, request_name: str) -> None:
        """Handle the report that the request is still pending.

        The manager calls this about once per second. The current certificate may have expired.
        """
        ...

    def failed(self, current: tls.Certificate | None, err: Exception) -> None:
        """Handle a failed attempt to get a new certificate; the manager will try again."""
        ...

    def renewed(self) -> None:
        """Handle the arrival of a new certificate."""
        ...


@dataclass(slots=True)
class Config:
    """Describe the parts and settings of a manager."""

    certificate_store: Store
    signer_name: str
    get_usages: GetUsages
    get_template: Callable[[], certutil.CertificateRequest | None]
    """The function returns the contents of the next request. While it returns None, the manager requests nothing."""
    dynamic_template: bool = False
    """With True the template may change, and the manager renews a certificate that no longer matches it."""
    clientset_fn: ClientsetFunc | None = None
    """Without this function the manager renews nothing."""
    requested_certificate_lifetime: float | None = None
    """`requested_certificate_lifetime` is the desired lifetime, in seconds. The signer may ignore it."""
    bootstrap_certificate_pem: bytes = b""
    """This certificate, with bootstrap_key_pem, is used while the store is empty. The manager replaces it at once."""
    bootstrap_key_pem: bytes = b""
    certificate_rotation: Histogram | None = None
    """The histogram receives the age, in seconds, of each certificate that is replaced."""
    certificate_renew_failure: Counter | None = None
    observer: Observer | None = None
    name: str = ""
    """The name appears in logs and as the thread's name. If it is empty, the signer's name is used."""
    clock: clock_.Clock | None = None


@dataclass(frozen=True, slots=True)
class _FirstCertificate:
    """Describe the certificate at the start of the manager, if there is one."""

    certificate: tls.Certificate | None
    renew_at_once: bool


class ManagerImpl:
    """Request certificates in one thread; any thread may call `current`."""

    def __init__(self, config: Config) -> None:
        """Raise OSError or ValueError if the stored certificate or the bootstrap certificate cannot be used."""
        self._clientset_fn = config.clientset_fn
        self._get_template = config.get_template
        self._dynamic_template = config.dynamic_template
        self._signer_name = config.signer_name
        self._requested_certificate_lifetime = config.requested_certificate_lifetime
        self._get_usages = config.get_usages
        self._cert_store = config.certificate_store
        self._certificate_rotation = config.certificate_rotation
        self._certificate_renew_failure = config.certificate_renew_failure
        self._observer = config.observer
        self._name = config.name or config.signer_name
        self._clock = config.clock or clock_.RealClock()
        # This is the template of the last request; only the manager's thread uses it.
        self._last_request: certutil.CertificateRequest | None = None
        self._lock = threading.Lock()  # The lock guards _cert and _server_health.
        self._server_health = False
        first = self._get_current_certificate_or_bootstrap(config)
        self._cert, self._force_rotation = first.certificate, first.renew_at_once
        self._ctx, self._cancel = golang.with_cancel(golang.background())

    def current(self) -> tls.Certificate | None:
        cert = self._stored()
        if cert is not None and self._clock.now() > cert.not_after:
            klog.v(2).info_s("Current certificate is expired", logger=self._name)
            return None
        return cert

    def server_healthy(self) -> bool:
        with self._lock:
            return self._server_health

    def start(self) -> None:
        """Renew the certificate in a new thread until stop."""
        # Without a client the manager can make no requests.
        if self._clientset_fn is None:
            klog.v(2).info_s("Certificate rotation is not enabled, no connection to the apiserver", logger=self._name)
            return
        klog.v(2).info_s("Certificate rotation is enabled", logger=self._name)
        golang.go(self.run, name=f"certificate-{self._name.rpartition('/')[2]}")

    def stop(self) -> None:
        """End the thread, and abort a running API call; the current certificate stays."""
        self._cancel()

    def run(self) -> None:
        """Renew the certificate until stop.

        Go checks the template in a second goroutine, which interrupts the first. Here the one thread checks it whenever
        it waits.
        """
        wait.until(self._rotate, 1.0, self._ctx, self._clock)

    def _rotate(self) -> None:
        """Wait until the certificate is due for renewal, and renew it."""
        if not self._wait_for_rotation() or self._get_template() is None:
            return
        backoff = wait.Backoff(2.0, factor=2.0, jitter=0.1, steps=4)
        while self._ctx.err() is None and not self.rotate_certs(self._ctx):
            if backoff.steps == 0:
                err = TimeoutError("timed out waiting for the condition")
                klog.error_s(err, "Reached backoff limit, still unable to rotate certs", logger=self._name)
            self._sleep(backoff.step())

    def _wait_for_rotation(self) -> bool:
        """Return True when it is time to renew, False once stopped.

        DIVERGES (safer): the thread that renews a certificate checks the time of day repeatedly while it waits.
        Go: k8s.io/client-go/util/certificate/certificate_manager.go, (*manager).run: one timer runs until the renewal
        is due.
        Why: a timer does not count the time for which the machine was suspended, and does not notice when the clock is
        set. The certificate could expire before the renewal.
        Test: certificate_manager_test.py:test_a_clock_that_is_set_forward_brings_the_renewal_forward
        """
        deadline = self._next_rotation_deadline()
        period = _TEMPLATE_PERIOD if self._dynamic_template else _MAX_SLEEP
        remaining = (deadline - self._clock.now()).total_seconds()
        if remaining > 0:
            sleep = datetime.timedelta(seconds=round(remaining))
            klog.v(2).info_s("Waiting for next certificate rotation", logger=self._name, sleep=str(sleep))
        while remaining > 0:
            if not self._sleep(min(remaining, period)):
                return False
            if self._template_changed():
                klog.v(2).info_s("Certificate template changed, rotating", logger=self._name)
                return True
            remaining = (deadline - self._clock.now()).total_seconds()
        return self._ctx.err() is None

    def _template_changed(self) -> bool:
        """Report whether the template now differs from both the certificate and the last request."""
        if not self._dynamic_template or self._cert_satisfies_template():
            return False
        return self._last_request != self._get_template()

    def _sleep(self, seconds: float) -> bool:
        """Sleep, and return False if the manager was stopped meanwhile."""
        return not wait.sleep(self._ctx, seconds, self._clock)

    def _get_current_certificate_or_bootstrap(self, config: Config) -> _FirstCertificate:
        try:
            current = self._cert_store.current()
        except NoCertKeyError:
            pass
        else:
            if self._clock.now() < current.not_after:
                return _FirstCertificate(current, renew_at_once=False)
        if not config.bootstrap_certificate_pem or not config.bootstrap_key_pem:
            return _FirstCertificate(None, renew_at_once=True)
        bootstrap = tls.x509_key_pair(config.bootstrap_certificate_pem, config.bootstrap_key_pem)
        try:
            bootstrap = self._cert_store.update(config.bootstrap_certificate_pem, config.bootstrap_key_pem)
        except (OSError, ValueError) as err:
            message = "Unable to set the cert/key pair to the bootstrap certificate"
            klog.error_s(err, message, logger=self._name)
        return _FirstCertificate(bootstrap, renew_at_once=True)

    def rotate_certs(self, ctx: golang.Context) -> bool:
        """Request a certificate, wait until it is issued, and store it.

        Report whether there is a new certificate; failures are logged. The API server's responses also determine
        whether it counts as healthy.
        """
        klog.v(2).info_s("Rotating certificates", logger=self._name)
        try:
            template, csr_pem, key_pem, private_key = self._generate_csr()
        except ValueError as err:
            return self._failed(err, "Unable to generate a certificate signing request")
        try:
            client = self._get_clientset()
        except _FAILURES as err:
            return self._failed(err, "Unable to load a client to request certificates")
        usages = self._get_usages(private_key)
        try:
            name, uid = csr.request_certificate(
                ctx,
                client,
                csr_pem,
                self._request_name(private_key, template, usages),
                self._signer_name,
                self._requested_certificate_lifetime,
                usages,
                private_key,
            )
        except _FAILURES as err:
            self._update_server_error(err)
            if isinstance(err, ValueError):
                self._forget_request()  # The existing request of this name cannot be used.
            return self._failed(err, "Failed while requesting a signed certificate from the control plane")
        except golang.Canceled:
            return False
        self._last_request = template
        try:
            certificate_pem = self._wait_for_certificate(ctx, client, name, uid)
        except TimeoutError as err:
            # The next attempt continues with this request.
            return self._failed(err, "Certificate request was not signed")
        except (csr.CertificateSigningRequestError, golang.Canceled) as err:
            if self._ctx.err() is None:
                self._forget_request()
            return self._failed(err, "Certificate request was not signed")
        try:
            new = self._cert_store.update(certificate_pem, key_pem)
        except (OSError, ValueError) as err:
            if isinstance(err, ValueError):
                self._forget_request()
            return self._failed(err, "Unable to store the new cert/key pair")
        self._forget_request()
        self._use(new)
        return True

    def _wait_for_certificate(
        self, ctx: golang.Context, client: kubernetes.Interface, name: str, uid: types.UID
    ) -> bytes:
        ctx, cancel = golang.with_timeout(ctx, CERTIFICATE_WAIT_TIMEOUT)

        def while_waiting() -> None:
            # The certificate that this request would yield no longer matches the template.
            if self._template_changed():
                cancel()
            if self._observer is not None:
                self._observer.waiting(self._stored(), name)

        try:
            return csr.wait_for_certificate(ctx, client, name, uid, self._clock, while_waiting)
        finally:
            cancel()

    def _failed(self, err: Exception, message: str) -> bool:
        if self._ctx.err() is None:  # After stop the attempt was aborted, which is not a failure.
            klog.error_s(err, message, logger=self._name)
            if self._certificate_renew_failure is not None:
                self._certificate_renew_failure.inc()
            if self._observer is not None:
                self._observer.failed(self._stored(), err)
        return False

    def _use(self, new: tls.Certificate) -> None:
        old = self._update_cached(new)
        # The flag is reset only here, because an attempt may also end with an exception that rotate_certs does not
        # handle.
        self._force_rotation = False
        if old is not None and self._certificate_rotation is not None:
            self._certificate_rotation.observe(self._clock.since(old.not_before))
        if self._observer is not None:
            self._observer.renewed()

    def _stored(self) -> tls.Certificate | None:
        """Return the current certificate even if it has expired."""
        with self._lock:
            return self._cert

    def _get_clientset(self) -> kubernetes.Interface:
        assert self._clientset_fn is not None
        return self._clientset_fn(self.current())

    def _cert_satisfies_template(self) -> bool:
        """Report whether the certificate covers everything in the template; it may cover more."""
        cert = self._stored()
        if cert is None:
            return False
        template = self._get_template()
        return template is None or _satisfies(cert, template, self._name)

    def _next_rotation_deadline(self) -> datetime.datetime:
        """Return when 70 to 90 % of the certificate's lifetime have passed, or now if a renewal is already due."""
        if self._force_rotation:
            return self._clock.now()
        cert = self._stored()
        if cert is None or not self._cert_satisfies_template():
            return self._clock.now()
        total = (cert.not_after - cert.not_before).total_seconds()
        deadline = cert.not_before + datetime.timedelta(seconds=jittery_duration(total))
        klog.v(2).info_s(
            "Certificate rotation deadline determined",
            logger=self._name,
            expiration=cert.not_after,
            deadline=deadline,
        )
        return deadline

    def _update_cached(self, cert: tls.Certificate) -> tls.Certificate | None:
        """Use the new certificate, and return the old one."""
        with self._lock:
            self._server_health = True
            old, self._cert = self._cert, cert
        return old

    def _update_server_error(self, err: Exception) -> None:
        """Infer from a failed request whether the API server is healthy.

        An unauthorized response counts as healthy, because a proxy that terminates TLS may send it too. Any other
        error that does not fit a certificate request may come from a load balancer in front of a server that is down.
        """
        healthy = apierrors.is_unauthorized(err) or (
            not apierrors.has_status_cause(err, apierrors.CAUSE_UNEXPECTED_SERVER_RESPONSE)
            and (apierrors.is_not_found(err) or apierrors.is_forbidden(err))
        )
        with self._lock:
            self._server_health = healthy

    def _generate_csr(self) -> tuple[certutil.CertificateRequest, bytes, bytes, keyutil.PrivateKey]:
        """Return the template, the PEM request, the PEM key and the key.

        Raise ValueError if there is no template, or no request can be made from it.
        """
        template = self._get_template()
        if template is None:
            raise ValueError("unable to create a csr, no template available")
        key_pem = self._cert_store.pending_key() or self._new_key()
        private_key = keyutil.parse_private_key_pem(key_pem)
        try:
            csr_pem = certutil.make_csr_from_template(private_key, template)
        except ValueError as err:
            raise ValueError(f"unable to create a csr from the private key: {err}") from err
        return template, csr_pem, key_pem, private_key

    def _new_key(self) -> bytes:
        """Make a key, and keep it as the key of the pending request.

        DIVERGES (fault of Go): one certificate request waits until it is approved or denied, also across restarts.
        Go: k8s.io/client-go/util/certificate/certificate_manager.go, (*manager).rotateCerts: the Go kubelet makes a new
        key and a new request after 15 minutes and at each start.
        Why: a certificate that is issued later for the older request is lost, because its key is gone.
        Test: certificate_manager_test.py:test_a_request_is_not_replaced_because_nobody_decides,
        certificate_manager_test.py:test_a_restart_goes_on_with_the_request_that_waits
        """
        key_pem = keyutil.make_elliptic_private_key_pem()
        try:
            self._cert_store.set_pending_key(key_pem)
        except OSError as err:
            message = "Unable to store the key of the certificate request, a restart will create another request"
            klog.error_s(err, message, logger=self._name)
        return key_pem

    def _forget_request(self) -> None:
        try:
            self._cert_store.set_pending_key(None)
        except OSError as err:
            klog.error_s(err, "Unable to remove the key of the last certificate request", logger=self._name)

    def _request_name(
        self, private_key: keyutil.PrivateKey, template: certutil.CertificateRequest, usages: list[str]
    ) -> str:
        """Return a name that is the same for the same key and template, so that the request is found again."""
        parts = [self._signer_name, template.common_name]
        parts += [f"O={name}" for name in template.organization]
        parts += [f"DNS={name}" for name in template.dns_names]
        parts += [f"IP={ip}" for ip in template.ip_addresses]
        return csr.digested_name("csr-", private_key, [*parts, *usages])


def new_manager(config: Config) -> ManagerImpl:
    """Return a manager; raise OSError or ValueError if the stored or the bootstrap certificate cannot be used."""
    return ManagerImpl(config)


def jittery_duration(total_duration: float) -> float:
    """Return a random 70 to 90 % of the duration.

    The randomness keeps nodes that were created together from renewing together each time.
    """
    return wait.jitter(total_duration, 0.2) - total_duration * 0.3


def _satisfies(cert: tls.Certificate, template: certutil.CertificateRequest, name: str) -> bool:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        with certutil.long_names_allowed():
            subject = cert.leaf.subject
    except golangx509.decoding_errors() as err:
        # DIVERGES (platform): the kubelet keeps a certificate whose subject cannot be decoded until its regular
        # renewal.
        # Go: k8s.io/client-go/util/certificate/certificate_manager.go, (*manager).certSatisfiesTemplateLocked: the Go
        # kubelet also decodes subjects in Latin-1 (T61String), and renews the certificate if its common name differs.
        # Why: the `cryptography` library does not decode such subjects. The next certificate would most likely look the
        # same, and be renewed at once.
        # Test: certificate_manager_test.py:test_a_certificate_whose_subject_cannot_be_read_is_renewed_in_time
        klog.error_s(err, "Unable to read the subject of the current certificate", logger=name)
        return True

    def values(oid: x509.ObjectIdentifier) -> list[str]:
        return [str(attribute.value) for attribute in subject.get_attributes_for_oid(oid)]

    common_name = "".join(values(NameOID.COMMON_NAME)[-1:])
    if template.common_name != common_name:
        message = "Current certificate CN does not match requested CN"
        klog.v(2).info_s(message, logger=name, currentName=common_name, requestedName=template.common_name)
        return False
    try:
        names = cert.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    except golangx509.decoding_errors() as err:
        klog.error_s(err, "Unable to read the names in the current certificate", logger=name)
        return True
    if missing := set(template.dns_names) - set(names.get_values_for_type(x509.DNSName)):
        message = "Current certificate is missing requested DNS names"
        klog.v(2).info_s(message, logger=name, dnsNames=sorted(missing))
        return False
    if missing := {str(ip) for ip in template.ip_addresses} - set(map(str, names.get_values_for_type(x509.IPAddress))):
        klog.v(2).info_s("Current certificate is missing requested IP addresses", logger=name, IPs=sorted(missing))
        return False
    if missing := set(template.organization) - set(values(NameOID.ORGANIZATION_NAME)):
        klog.v(2).info_s("Current certificate is missing requested orgs", logger=name, orgs=sorted(missing))
        return False
    return True


if TYPE_CHECKING:

    def _is_manager(impl: ManagerImpl) -> Manager:
        return impl
