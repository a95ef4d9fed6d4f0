"""Test certificate requests: they are created once, and followed until they are granted or refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from framework import faulty_call
from framework.client_calls import Call
from framework.faulty_call import MINE, OTHER, FaultyCall, Kind
from framework.waiting import wait_for

from pkg import golang
from pkg.api.certificates import v1 as certificatesv1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.client_go.util.certificate import csr, testing

WAIT = 30.0
SIGNER = certificatesv1.KUBE_API_SERVER_CLIENT_KUBELET_SIGNER_NAME
USAGES = [certificatesv1.USAGE_CLIENT_AUTH]
AUTHORITY = testing.Authority()


class Requester:
    """Hold a signer that does not grant requests by itself, and a key for requests."""

    def __init__(self) -> None:
        self.signer = testing.FakeSigner(AUTHORITY)
        self.signer.approve = False
        self.key = keyutil.parse_private_key_pem(keyutil.make_elliptic_private_key_pem())
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.clock = clocktesting.FakeClock()

    def request(
        self, name: str = "", common_name: str = "n", signer: str = SIGNER, duration: float | None = None
    ) -> tuple[str, str]:
        data = certutil.make_csr(self.key, common_name)
        return csr.request_certificate(self.ctx, self.signer.client, data, name, signer, duration, USAGES, self.key)

    def wait(self, name: str, uid: str, tick: Callable[[], object] | None = None) -> golang.Channel[bytes | Exception]:
        """Wait in a thread; the returned channel receives the result."""
        result: golang.Channel[bytes | Exception] = golang.Channel(1)

        def run() -> None:
            try:
                result.send(
                    csr.wait_for_certificate(self.ctx, self.signer.client, name, types.UID(uid), self.clock, tick)
                )
            except Exception as err:
                result.send(err)

        golang.go(run, name="waiter")
        return result


def outcome(result: golang.Channel[bytes | Exception]) -> bytes | Exception | None:
    value, ok = result.recv(WAIT)
    assert ok, "still waiting"
    return value


def test_request_certificate() -> None:
    r = Requester()
    name, uid = r.request(duration=3600.9)
    (found,) = r.signer.requests()
    assert (name, uid) == (found.metadata.name, found.metadata.uid) and found.metadata.generate_name == "csr-"
    assert (found.spec.signer_name, found.spec.usages, found.spec.expiration_seconds) == (SIGNER, USAGES, 3600)


def test_request_certificate_finds_that_of_an_earlier_run() -> None:
    r = Requester()
    assert r.request("node-csr-x") == r.request("node-csr-x")
    assert len(r.signer.requests()) == 1 and r.signer.requests()[0].spec.expiration_seconds is None


def other_key(r: Requester) -> None:
    r.key = Requester().key


def expired(r: Requester) -> None:
    r.signer.not_after = testing.now() - timedelta(minutes=1)
    r.signer.grant("x")


def broken(r: Requester) -> None:
    r.signer.requests()[0].spec.request = b"broken"


def nothing(r: Requester) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        pytest.param(nothing, {"common_name": "other"}, "csr subjects differ: new: CN=n, orig: CN=other", id="subject"),
        pytest.param(nothing, {"signer": "a/b"}, 'csr signerNames differ: new ".*kubelet", orig: "a/b"', id="signer"),
        pytest.param(other_key, {}, "it is of another key", id="other key"),
        pytest.param(expired, {}, "one of the certificates for the CSR has expired", id="expired"),
        pytest.param(broken, {}, "unable to parse new csr: PEM block type must be CERTIFICATE REQUEST", id="broken"),
    ],
)
def test_request_certificate_refuses_one_for_something_else(
    change: Callable[[Requester], None], options: dict[str, str], message: str
) -> None:
    r = Requester()
    r.request("x")
    change(r)
    with pytest.raises(ValueError, match=f"retrieved csr is not compatible: .*{message}"):
        r.request("x", **options)  # type: ignore[arg-type]


def test_request_certificate_reuses_one_that_is_granted() -> None:
    r = Requester()
    r.request("x")
    r.signer.grant("x")
    assert r.request("x")[0] == "x"


def test_request_certificate_says_what_was_refused() -> None:
    r = Requester()
    r.signer.errors["create"] = [apierrors.new_forbidden("certificatesigningrequests", "", "no")]
    with pytest.raises(apierrors.StatusError, match="cannot create certificate signing request: ") as caught:
        r.request()
    assert apierrors.is_forbidden(caught.value)


def test_wait_for_certificate_granted_before() -> None:
    r = Requester()
    name, uid = r.request()
    r.signer.grant(name)
    cert_pem = csr.wait_for_certificate(r.ctx, r.signer.client, name, types.UID(uid))
    (cert,) = certutil.parse_certs_pem(cert_pem)
    assert cert.public_key() == r.key.public_key()


def test_wait_for_certificate_approved_then_issued() -> None:
    r = Requester()
    name, uid = r.request()
    result = r.wait(name, uid)
    assert r.signer.watched.recv(WAIT)[1]
    r.signer.condition(name, certificatesv1.CERTIFICATE_APPROVED)
    assert len(result) == 0
    r.signer.grant(name)
    assert outcome(result) == r.signer.requests()[0].status.certificate


@pytest.mark.parametrize(
    ("happen", "message"),
    [
        pytest.param(
            lambda r, name: r.signer.condition(name, certificatesv1.CERTIFICATE_DENIED),
            "certificate signing request is denied, reason: Because, message: I say",
            id="denied",
        ),
        pytest.param(
            lambda r, name: r.signer.condition(name, certificatesv1.CERTIFICATE_FAILED),
            "certificate signing request failed, reason: Because, message: I say",
            id="failed",
        ),
        pytest.param(lambda r, name: r.signer.remove(name), 'csr "csr-1" was deleted', id="deleted"),
        pytest.param(
            lambda r, name: (r.signer.remove(name), r.signer.cut_watches()), 'csr "csr-1" was deleted', id="missed"
        ),
        pytest.param(
            lambda r, name: r.signer.put(certificatesv1.CertificateSigningRequest(metadata=_meta(name))),
            'csr "csr-1" changed UIDs',
            id="another",
        ),
    ],
)
def test_wait_for_certificate_ends_when_there_is_no_hope(
    happen: Callable[[Requester, str], object], message: str
) -> None:
    r = Requester()
    name, uid = r.request()
    result = r.wait(name, uid)
    assert r.signer.watched.recv(WAIT)[1]
    happen(r, name)
    err = outcome(result)
    assert isinstance(err, csr.CertificateSigningRequestError) and str(err) == message


def _meta(name: str) -> metav1.ObjectMeta:
    return metav1.ObjectMeta(name=name, uid=types.UID("other"))


def test_wait_for_certificate_outlives_failed_lists_and_watches() -> None:
    r = Requester()
    name, uid = r.request()
    r.signer.errors["list"] = [ConnectionError("refused"), apierrors.new_internal_error("boom"), ValueError("?")]
    r.signer.errors["watch"] = [ConnectionError("refused"), golang.ThreadError("no thread")]
    result = r.wait(name, uid)
    step_until(r, r.signer.watched)
    assert r.signer.errors == {"create": [], "get": [], "list": [], "watch": []}
    r.signer.cut_watches()
    step_until(r, r.signer.watched)
    r.signer.grant(name)
    assert isinstance(outcome(result), bytes)


def step_until(r: Requester, channel: golang.Channel[None]) -> None:
    """Step the waiter's clock until the channel has a value."""

    def has_come() -> bool:
        if channel.try_recv()[2]:
            return True
        r.clock.step(1)
        return False

    wait_for("something from the channel", has_come)


def test_wait_for_certificate_calls_while_waiting() -> None:
    r = Requester()
    name, uid = r.request()
    ticks: golang.Channel[None] = golang.Channel(10)
    result = r.wait(name, uid, lambda: ticks.send(None))
    assert r.signer.watched.recv(WAIT)[1]
    for _ in range(3):
        step_until(r, ticks)
    r.cancel()
    assert isinstance(outcome(result), golang.Canceled)


def test_wait_for_certificate_in_vain() -> None:
    r = Requester()
    name, uid = r.request()
    ctx, cancel = golang.with_timeout(r.ctx, 0)
    with pytest.raises(TimeoutError, match="timed out waiting for the condition"):
        csr.wait_for_certificate(ctx, r.signer.client, name, types.UID(uid))
    cancel()


def test_what_cannot_be_decoded_is_passed_over() -> None:
    r = Requester()
    name, uid = r.request()
    result = r.wait(name, uid)
    assert r.signer.watched.recv(WAIT)[1]
    r.signer.spoil(name)
    r.signer.grant(name)
    assert isinstance(outcome(result), bytes)


def test_a_request_whose_subject_is_no_text_is_refused() -> None:
    r = Requester()
    bits = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0joe", _ASN1Type.BitString)
    bits._oid = NameOID.COMMON_NAME
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([bits]))
    data = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)

    def request() -> None:
        csr.request_certificate(r.ctx, r.signer.client, data, "a", SIGNER, None, USAGES, r.key)

    request()
    with pytest.raises(ValueError, match="unable to parse new csr"):
        request()


@faulty_call.cases(Call("pkg/client_go/util/certificate/csr/csr.py", "certificatesigningrequests", "get"))
def test_call_that_gets_a_request_of_an_earlier_run(call: Call, kind: Kind, tmp_path: Path) -> None:
    r = Requester()
    with FaultyCall(tmp_path, call, kind) as api:

        def request(name: str) -> bool:
            data = certutil.make_csr(r.key, "system:node:n", ("system:nodes",))
            return csr.request_certificate(r.ctx, api.client, data, name, SIGNER, None, USAGES, r.key)[0] == name

        for name in (MINE, OTHER):
            request(name)
        api.see_recover(request, True)
        assert {each["metadata"]["name"] for each in api.cluster.store.list(call.resource)} == {MINE, OTHER}
