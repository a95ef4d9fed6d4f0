"""Test when and how certificates are renewed, and what happens when a renewal fails."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pkg import golang
from pkg.api.certificates import v1 as certificates
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go.transport.tls import describe
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import certificate, keyutil
from pkg.client_go.util.certificate import certificate_manager, testing
from pkg.client_go.util.keyutil import pem

WAIT = 30.0
HOUR = timedelta(hours=1)
START = testing.now()
AUTHORITY = testing.Authority()
TEMPLATE = certutil.CertificateRequest("system:node:n", ("system:nodes",))


class Rig:
    """Hold a manager on a fake clock, with a store in memory and a signer."""

    def __init__(self) -> None:
        self.clock = clocktesting.FakeClock(START)
        self.signer = testing.FakeSigner(AUTHORITY)
        self.store = testing.FakeStore()
        self.template: certutil.CertificateRequest | None = TEMPLATE
        self.config = certificate.Config(
            certificate_store=self.store,
            signer_name="example.com/signer",
            get_usages=certificate.default_kubelet_client_get_usages,
            get_template=lambda: self.template,
            clientset_fn=self.new_client,
            certificate_renew_failure=self,
            certificate_rotation=self,
            observer=self,
            clock=self.clock,
        )
        self.clients_for: list[certificate.Certificate | None] = []
        self.failures = 0
        self.ages: list[float] = []
        self.told: list[str] = []
        self.news: golang.Channel[str] = golang.Channel(1000)
        self._manager: certificate.ManagerImpl | None = None

    @property
    def manager(self) -> certificate.ManagerImpl:
        """Return the manager, which the first call makes."""
        if self._manager is None:
            self._manager = certificate.new_manager(self.config)
        return self._manager

    def new_client(self, current: certificate.Certificate | None) -> Any:
        self.clients_for.append(current)
        return self.signer.client

    def inc(self) -> None:
        self.failures += 1

    def observe(self, value: float) -> None:
        self.ages.append(value)

    def waiting(self, current: certificate.Certificate | None, request_name: str) -> None:
        self._tell(f"waiting for {request_name}")

    def failed(self, current: certificate.Certificate | None, err: Exception) -> None:
        self._tell(f"failed: {err}")

    def renewed(self) -> None:
        self._tell("renewed")

    def has_renewed(self) -> bool:
        """Report whether the manager uses a new certificate, which it has stored by then."""
        return "renewed" in self.told

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.news.try_send(what)

    def rotate(self) -> bool:
        return self.manager.rotate_certs(golang.background())

    def step_until(self, condition: Callable[[], object], seconds: float = 1) -> float:
        """Step the clock whenever the manager waits, until the condition holds; return the time that passed."""
        ctx, cancel = golang.with_timeout(golang.background(), WAIT)
        before = self.clock.monotonic()
        while not condition():
            assert not ctx.wait(0.002), f"it did not come to that: {self.told}"
            if self.clock.has_waiters():
                self.clock.step(seconds)
        cancel()
        return self.clock.monotonic() - before

    def stop(self) -> None:
        if self._manager is not None:
            self._manager.stop()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.stop()


def pair(
    before: timedelta = HOUR, after: timedelta = HOUR, common_name: str = TEMPLATE.common_name, **options: object
) -> certificate.Certificate:
    """Return a certificate whose validity begins and ends at these times relative to the start."""
    return AUTHORITY.pair(
        common_name, TEMPLATE.organization, not_before=START - before, not_after=START + after, **options
    )


# The following tests compare the template with the stored certificate.


@pytest.mark.parametrize(
    ("cert", "template", "satisfied"),
    [
        pytest.param(None, None, False, id="no certificate, no template"),
        pytest.param(None, {}, False, id="no certificate"),
        pytest.param({}, None, True, id="no template"),
        pytest.param({"common_name": "a"}, {"common_name": "b"}, False, id="mismatched common name"),
        pytest.param({"organization": ()}, {"organization": ("o",)}, False, id="missing orgs"),
        pytest.param({"organization": ("o", "p")}, {"organization": ("p",)}, True, id="extra orgs"),
        pytest.param({}, {"dns_names": ("a.b",)}, False, id="no names"),
        pytest.param({"dns_names": ("c.d",)}, {"dns_names": ("a.b",)}, False, id="missing DNS names"),
        pytest.param({"dns_names": ("a.b", "c.d")}, {"dns_names": ("a.b",)}, True, id="extra DNS names"),
        pytest.param({"ips": ("10.0.0.1",)}, {"ips": ("10.0.0.2",)}, False, id="missing IP addresses"),
        pytest.param({"ips": ("10.0.0.1", "::1")}, {"ips": ("::1",)}, True, id="extra IP addresses"),
        pytest.param({"common_name": "x" * 80}, {"common_name": "x" * 80}, True, id="long names"),
    ],
)
def test_cert_satisfies_template(
    rig: Rig,
    cert: dict[str, tuple[str, ...]] | None,
    template: dict[str, tuple[str, ...]] | None,
    satisfied: bool,
) -> None:
    if cert is not None:
        options = {"common_name": "n", "organization": (), **cert}
        rig.store.cert = AUTHORITY.pair(**options)  # type: ignore[arg-type]
    rig.template = None
    if template is not None:
        wanted = {"common_name": "n", **template}
        ips = tuple(ipaddress.ip_address(ip) for ip in wanted.pop("ips", ()))
        rig.template = certutil.CertificateRequest(ip_addresses=ips, **wanted)  # type: ignore[arg-type]
    assert rig.manager._cert_satisfies_template() == satisfied


def test_a_certificate_whose_names_cannot_be_read_is_not_asked_for_again_and_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaf:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "n")])

        @property
        def extensions(self) -> x509.Extensions:
            raise x509.DuplicateExtension("twice", x509.SubjectAlternativeName.oid)

    rig.store.cert = AUTHORITY.pair(common_name="n", organization=())
    rig.template = certutil.CertificateRequest("n", dns_names=("a.b",))
    manager = rig.manager
    monkeypatch.setattr(type(rig.store.cert), "leaf", Leaf())
    assert manager._cert_satisfies_template()
    rig.template = certutil.CertificateRequest("other", dns_names=("a.b",))
    assert not manager._cert_satisfies_template()


def test_a_certificate_whose_subject_cannot_be_read_is_renewed_in_time(rig: Rig) -> None:
    good = AUTHORITY.pair("n" * 20, (), not_before=START - HOUR, not_after=START + 99 * HOUR)
    # The name is not valid UTF-8. Go reads some such names as Latin-1.
    der = good.leaf.public_bytes(serialization.Encoding.DER).replace(b"n" * 20, b"n" * 19 + b"\xfc")
    cert_pem = pem.encode("CERTIFICATE", der)
    rig.store.cert = certificate.x509_key_pair(cert_pem, good.key_pem)
    with pytest.raises(ValueError, match="error parsing"):
        _ = rig.store.cert.leaf.subject
    assert START < rig.manager._next_rotation_deadline() < rig.store.cert.not_after
    assert describe(cert_pem) == "a client certificate that cannot be read"


@pytest.mark.parametrize(
    ("cert", "due"),
    [
        pytest.param(None, True, id="none"),
        pytest.param(pair(60 * HOUR, 40 * HOUR), False, id="just before 70 %"),
        pytest.param(pair(92 * HOUR, 8 * HOUR), True, id="after 90 %"),
        pytest.param(pair(HOUR, 99 * HOUR, "other"), True, id="for another name"),
    ],
)
def test_set_rotation_deadline(rig: Rig, cert: certificate.Certificate | None, due: bool) -> None:
    rig.store.cert = cert
    for _ in range(50):
        assert (rig.manager._next_rotation_deadline() <= START) == due


def test_the_deadline_lies_between_70_and_90_percent_of_life(rig: Rig) -> None:
    rig.store.cert = pair(timedelta(0), 100 * HOUR)
    deadlines = {rig.manager._next_rotation_deadline() for _ in range(100)}
    assert START + 70 * HOUR <= min(deadlines) < max(deadlines) <= START + 90 * HOUR
    assert max(deadlines) - min(deadlines) > 5 * HOUR


# The following tests concern the first certificate.


def test_new_manager_takes_the_stored_certificate(rig: Rig) -> None:
    rig.store.cert = pair()
    rig.config.bootstrap_certificate_pem, rig.config.bootstrap_key_pem = AUTHORITY.issue("bootstrap")
    assert rig.manager.current() is rig.store.cert and not rig.manager._force_rotation


@pytest.mark.parametrize("stored", [None, pair(2 * HOUR, -HOUR)], ids=["none", "expired"])
def test_new_manager_falls_back_to_the_bootstrap_certificate(rig: Rig, stored: certificate.Certificate | None) -> None:
    rig.store.cert = stored
    rig.config.bootstrap_certificate_pem, rig.config.bootstrap_key_pem = AUTHORITY.issue("bootstrap")
    current = rig.manager.current()
    assert current is not None and current.leaf.subject.rfc4514_string() == "CN=bootstrap"
    assert rig.store.cert is current and rig.manager._next_rotation_deadline() == START


@pytest.mark.parametrize("stored", [None, pair(2 * HOUR, -HOUR)], ids=["none", "expired"])
def test_new_manager_begins_without(rig: Rig, stored: certificate.Certificate | None) -> None:
    rig.store.cert = stored
    assert rig.manager.current() is None and rig.manager._next_rotation_deadline() == START


def test_new_manager_goes_on_when_the_bootstrap_certificate_cannot_be_stored(rig: Rig) -> None:
    rig.config.bootstrap_certificate_pem, rig.config.bootstrap_key_pem = AUTHORITY.issue("bootstrap")
    rig.store.err = OSError("disk full")
    assert rig.manager.current() is not None and rig.store.cert is None


def test_new_manager_refuses_a_broken_store_or_bootstrap_pair(rig: Rig) -> None:
    rig.config.bootstrap_certificate_pem, rig.config.bootstrap_key_pem = b"broken", b"broken"
    with pytest.raises(ValueError, match="data does not contain"):
        certificate.new_manager(rig.config)
    rig.store.current = lambda: (_ for _ in ()).throw(PermissionError("no"))  # type: ignore[method-assign]
    with pytest.raises(PermissionError):
        certificate.new_manager(rig.config)


def test_current_is_none_once_expired(rig: Rig) -> None:
    rig.store.cert = pair()
    assert rig.manager.current() is not None
    rig.clock.step(3601)
    assert rig.manager.current() is None


def test_usages() -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ec_key = keyutil.parse_private_key_pem(keyutil.make_elliptic_private_key_pem())
    client, serving = certificate.default_kubelet_client_get_usages, certificate.default_kubelet_serving_get_usages
    assert client(ec_key) == ["digital signature", "client auth"]
    assert client(rsa_key) == ["digital signature", "key encipherment", "client auth"]
    assert serving(None) == ["digital signature", "server auth"]
    assert serving(rsa_key) == ["digital signature", "key encipherment", "server auth"]


# The following tests concern one renewal.


def test_rotate_certs(rig: Rig) -> None:
    rig.store.cert = old = pair()
    rig.config.requested_certificate_lifetime = 600.0
    assert rig.rotate()
    (request,) = rig.signer.requests()
    assert request.metadata.name.startswith("csr-") and rig.store.pending is None
    assert (request.spec.signer_name, request.spec.expiration_seconds) == ("example.com/signer", 600)
    assert request.spec.usages == ["digital signature", "client auth"]
    assert rig.manager.current() is rig.store.cert is not old
    assert rig.clients_for == [old]
    assert (rig.ages, rig.failures, rig.told) == ([3600.0], 0, ["renewed"])
    assert rig.manager.server_healthy()


def test_the_client_gets_no_certificate_that_has_ended(rig: Rig) -> None:
    rig.store.cert = pair()
    assert rig.manager.current() is not None
    rig.clock.step(7200)
    rig.rotate()
    assert rig.clients_for == [None]


UNEXPECTED = apierrors.StatusError(
    metav1.Status(
        code=403,
        reason="Forbidden",
        details=metav1.StatusDetails(causes=[metav1.StatusCause(reason=apierrors.CAUSE_UNEXPECTED_SERVER_RESPONSE)]),
    )
)


@pytest.mark.parametrize(
    ("err", "healthy"),
    [
        pytest.param(ConnectionError("refused"), False, id="not reached"),
        pytest.param(apierrors.new_internal_error("boom"), False, id="internal error"),
        pytest.param(apierrors.new_service_unavailable("busy"), False, id="unavailable"),
        pytest.param(apierrors.new_unauthorized("who"), True, id="unauthorized"),
        pytest.param(apierrors.new_forbidden("csr", "", "no"), True, id="forbidden"),
        pytest.param(apierrors.new_not_found("csr", ""), True, id="not found"),
        pytest.param(UNEXPECTED, False, id="forbidden by something in between"),
    ],
)
def test_server_health(rig: Rig, err: Exception, healthy: bool) -> None:
    rig.store.cert = pair()
    rig.signer.errors["create"] = [err]
    assert not rig.rotate()
    assert rig.manager.server_healthy() == healthy
    assert rig.manager.current() is rig.store.cert
    assert rig.failures == 1 and rig.told[0].startswith("failed: ")


def test_a_refused_request_is_a_failure(rig: Rig) -> None:
    rig.signer.approve = False
    done: golang.Channel[bool] = golang.Channel(1)
    golang.go(lambda: done.send(rig.rotate()), name="rotate")
    assert rig.signer.watched.recv(WAIT)[1]
    assert rig.store.pending
    rig.signer.condition(rig.signer.requests()[0].metadata.name, certificates.CERTIFICATE_DENIED)
    assert done.recv(WAIT) == (False, True)
    assert rig.told == ["failed: certificate signing request is denied, reason: Because, message: I say"]
    assert rig.store.pending is None, "the next request is of another key"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(lambda rig: setattr(rig.store, "err", OSError("disk full")), "disk full", id="store"),
        pytest.param(lambda rig: setattr(rig, "template", None), "no template available", id="template"),
        pytest.param(
            lambda rig: setattr(rig.config, "clientset_fn", lambda _: int("kubeconfig")), "kubeconfig", id="client"
        ),
    ],
)
def test_other_failures(rig: Rig, fault: Callable[[Rig], object], message: str) -> None:
    fault(rig)
    assert not rig.rotate()
    assert rig.failures == 1 and message in rig.told[0]


# The following tests concern the loop.


def test_without_client_nothing_is_renewed(rig: Rig) -> None:
    rig.config.clientset_fn = None
    rig.manager.start()
    assert not rig.clock.has_waiters() and rig.signer.requests() == []


def test_start_renews_in_time(rig: Rig) -> None:
    rig.store.cert = pair(timedelta(0), 100 * HOUR)
    rig.signer.not_before, rig.signer.not_after = START + 80 * HOUR, START + 180 * HOUR
    rig.manager.start()
    elapsed = rig.step_until(rig.has_renewed, 1800)
    assert 70 * 3600 <= elapsed <= 91 * 3600
    assert len(rig.signer.requests()) == 1


def test_a_clock_that_is_set_forward_brings_the_renewal_forward(rig: Rig) -> None:
    rig.store.cert = pair(timedelta(0), 100 * HOUR)
    rig.manager.start()
    rig.step_until(rig.clock.has_waiters, 0)
    # The clock is set without a step, so no timer notices the time.
    rig.clock._now = START + 95 * HOUR
    assert rig.step_until(rig.has_renewed, 60) <= 3600


def test_failures_are_retried_ever_more_slowly(rig: Rig) -> None:
    times: list[float] = []
    create = rig.signer.create
    rig.signer.create = lambda *args: times.append(rig.clock.monotonic()) or create(*args)  # type: ignore[method-assign, func-returns-value]
    rig.signer.errors["create"] = [ConnectionError("refused") for _ in range(7)]
    rig.manager.start()
    rig.step_until(rig.has_renewed, 0.5)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    for gap, expected in zip(gaps, [2, 4, 8, 16, 32, 32, 32], strict=True):
        assert expected <= gap <= expected * 1.1 + 0.5
    assert rig.failures == 7


def test_the_bootstrap_certificate_is_replaced_after_an_error_that_is_none_of_a_renewal(rig: Rig) -> None:
    """The bootstrap certificate is replaced even after an unexpected error.

    It may belong to a more privileged user, and be valid for a year.
    """
    rig.config.bootstrap_certificate_pem, rig.config.bootstrap_key_pem = AUTHORITY.issue(
        TEMPLATE.common_name, TEMPLATE.organization, not_before=START, not_after=START + 100 * HOUR
    )
    rig.signer.errors["create"] = [golang.ThreadError("no more threads")]
    rig.manager.start()
    assert rig.step_until(rig.has_renewed) < 60


def test_a_changed_template_renews_before_the_deadline(rig: Rig) -> None:
    rig.store.cert = pair(timedelta(0), 100 * HOUR)
    rig.config.dynamic_template = True
    rig.manager.start()
    rig.step_until(rig.clock.has_waiters, 0)
    rig.clock.step(60)
    rig.step_until(rig.clock.has_waiters, 0)
    assert rig.signer.requests() == []
    rig.template = certutil.CertificateRequest("system:node:n", ("system:nodes",), ("new.name",))
    assert rig.step_until(rig.has_renewed) < 3600
    assert rig.manager._cert_satisfies_template()


def test_a_template_that_asks_for_less_renews_nothing(rig: Rig) -> None:
    rig.store.cert = pair(timedelta(0), 100 * HOUR, dns_names=["a.b"])
    rig.config.dynamic_template = True
    rig.manager.start()
    rig.template = None
    for _ in range(5):
        rig.step_until(rig.clock.has_waiters, 0)
        rig.clock.step(60)
    rig.step_until(rig.clock.has_waiters, 0)
    assert rig.signer.requests() == []


def test_without_template_nothing_is_asked_for_until_there_is_one(rig: Rig) -> None:
    rig.config.dynamic_template = True
    rig.template = None
    rig.manager.start()
    rig.step_until(rig.clock.has_waiters, 0)
    rig.clock.step(5)
    rig.step_until(rig.clock.has_waiters, 0)
    assert rig.signer.requests() == [] and rig.failures == 0
    rig.template = TEMPLATE
    rig.step_until(rig.has_renewed)


def test_a_request_for_an_old_template_is_given_up(rig: Rig) -> None:
    rig.config.dynamic_template = True
    rig.signer.approve = False
    rig.manager.start()
    assert rig.signer.watched.recv(WAIT)[1]
    rig.signer.approve = True
    rig.template = certutil.CertificateRequest("system:node:n", ("system:nodes",), ("new.name",))
    rig.step_until(rig.has_renewed)
    assert rig.manager._cert_satisfies_template()
    assert len(rig.signer.requests()) == 2


def test_the_observer_hears_of_a_request_that_waits(rig: Rig) -> None:
    rig.signer.approve = False
    rig.manager.start()
    assert rig.signer.watched.recv(WAIT)[1]
    rig.step_until(lambda: len(rig.told) >= 3)
    (request,) = rig.signer.requests()
    assert set(rig.told) == {f"waiting for {request.metadata.name}"}
    rig.signer.grant(request.metadata.name)
    rig.step_until(lambda: rig.told[-1] == "renewed")


def test_a_restart_goes_on_with_the_request_that_waits(rig: Rig) -> None:
    rig.signer.approve = False
    rig.manager.start()
    assert rig.signer.watched.recv(WAIT)[1]
    rig.stop()
    pending = rig.store.pending
    again = certificate.new_manager(rig.config)
    again.start()
    assert rig.signer.watched.recv(WAIT)[1]
    (request,) = rig.signer.requests()
    rig.signer.grant(request.metadata.name)
    rig.step_until(rig.has_renewed)
    again.stop()
    cert = again.current()
    assert cert is not None and cert.key_pem == pending and rig.store.pending is None


def test_a_request_is_not_replaced_because_nobody_decides(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_manager, "CERTIFICATE_WAIT_TIMEOUT", 0.02)
    rig.signer.approve = False
    rig.manager.start()
    rig.step_until(lambda: rig.failures >= 2)
    (request,) = rig.signer.requests()
    rig.signer.grant(request.metadata.name)
    rig.step_until(rig.has_renewed)
    assert len(rig.signer.requests()) == 1


def test_a_granted_request_that_has_ended_since_is_replaced(rig: Rig) -> None:
    rig.signer.not_after = testing.now() - timedelta(minutes=1)
    rig.store.err = OSError("disk full")
    assert not rig.rotate() and rig.store.pending is not None
    rig.store.err, rig.signer.not_after = None, None
    assert not rig.rotate() and "has expired" in rig.told[-1]
    assert rig.rotate() and len(rig.signer.requests()) == 2


@pytest.mark.parametrize("approve", [True, False], ids=["between renewals", "while a request waits"])
def test_stop(rig: Rig, approve: bool) -> None:
    rig.signer.approve = approve
    rig.signer.not_before, rig.signer.not_after = START, START + 100 * HOUR
    rig.manager.start()
    assert rig.signer.created.recv(WAIT)[1]
    rig.manager.stop()  # The leak check verifies that the thread ends.
    assert rig.failures == 0 and not any(told.startswith("failed") for told in rig.told)
