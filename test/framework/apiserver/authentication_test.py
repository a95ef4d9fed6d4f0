from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from framework.apiserver import authentication, certificates, errors, tokens
from framework.apiserver.interfaces import CREATE, Object, Request, UserInfo
from framework.apiserver.testing import FakeStore

ISSUER = tokens.ISSUER
NOW = 1_800_000_000.0
AUTHENTICATED = "system:authenticated"


class Admissions:
    """Record the admitted writes, and refuse them if the test wants that."""

    def __init__(self) -> None:
        self.error: errors.ApiError | None = None
        self.admitted: list[tuple[str, str]] = []

    def admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object | None:
        self.admitted.append((operation, request.subresource))
        if self.error is not None:
            raise self.error
        return new


@pytest.fixture
def store() -> FakeStore:
    store = FakeStore()
    store.add("nodes", {"metadata": {"name": "n1", "uid": "node-uid"}})
    store.add("serviceaccounts", {"metadata": {"name": "builder", "namespace": "ns", "uid": "account-uid"}})
    spec = {"serviceAccountName": "builder", "nodeName": "n1"}
    store.add("pods", {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"}, "spec": spec})
    store.add("pods", {"metadata": {"name": "q", "namespace": "ns", "uid": "q"}, "spec": {"serviceAccountName": "x"}})
    store.add("secrets", {"metadata": {"name": "s", "namespace": "ns", "uid": "secret-uid"}})
    return store


class Time:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def authenticator(store: FakeStore, time: Time) -> authentication.Authenticator:
    static = {"static-token": UserInfo("ann", groups=("staff",))}
    return authentication.Authenticator(lambda: store, tokens.TokenSigner(now=time), static, time)


def ask(token: str = "", pair: certificates.KeyPair | None = None, headers: Mapping[str, str] | None = None) -> Request:
    request = Request("GET", "/api", headers=dict(headers or {}))
    if token:
        request.headers["authorization"] = f"Bearer {token}"
    if pair is not None:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        request.peer_certificate = certificate.public_bytes(serialization.Encoding.DER)
    return request


@pytest.fixture(scope="module")
def authority() -> certificates.CertificateAuthority:
    return certificates.CertificateAuthority.create()


def test_certificates(store: FakeStore, authority: certificates.CertificateAuthority) -> None:
    authenticator = authentication.Authenticator(lambda: store, tokens.TokenSigner())
    found = authenticator.authenticate(ask(pair=authority.node_pair("n1")))
    assert found is not None
    assert (found.name, found.groups) == ("system:node:n1", ("system:nodes", AUTHENTICATED))
    assert found.extra["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    expired = authority.node_pair("n1", -timedelta(hours=1))
    with pytest.raises(errors.ApiError) as raised:
        authenticator.authenticate(ask(pair=expired))
    assert (raised.value.code, raised.value.message) == (401, "Unauthorized")


def test_a_token_counts_when_the_certificate_has_expired(
    authenticator: authentication.Authenticator, authority: certificates.CertificateAuthority
) -> None:
    expired = authority.node_pair("n1", timedelta(days=-365 * 9))
    found = authenticator.authenticate(ask("static-token", expired))
    assert found is not None and found.name == "ann"


def test_nobody(authenticator: authentication.Authenticator) -> None:
    assert authenticator.authenticate(ask()) is None
    assert authenticator.authenticate(ask(headers={"authorization": "Basic YTpi"})) is None


def test_static_tokens(authenticator: authentication.Authenticator) -> None:
    found = authenticator.authenticate(ask("static-token"))
    assert found == UserInfo("ann", groups=("staff", AUTHENTICATED))
    for wrong in ("static-toke", "other", "abcdef.0123456789abcdef"):
        with pytest.raises(errors.ApiError) as raised:
            authenticator.authenticate(ask(wrong))
        assert raised.value.code == 401


def bootstrap_secret(**changes: str | None) -> Object:
    data: dict[str, str | None] = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        **{key.replace("_", "-"): value for key, value in changes.items()},
    }
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items() if value is not None}
    return {
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": encoded,
    }


BOOTSTRAP: list[tuple[Object, tuple[str, ...] | None]] = [
    (bootstrap_secret(), ("system:bootstrappers",)),
    (
        bootstrap_secret(auth_extra_groups="system:bootstrappers:b,system:bootstrappers:a"),
        ("system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b"),
    ),
    (bootstrap_secret(auth_extra_groups="system:masters"), None),
    (bootstrap_secret(token_secret="other56789abcdef"), None),
    (bootstrap_secret(token_id="fedcba"), None),
    (bootstrap_secret(usage_bootstrap_authentication=None), None),
    (bootstrap_secret(usage_bootstrap_authentication="false"), None),
    (bootstrap_secret(expiration="2000-01-01T00:00:00Z"), None),
    (bootstrap_secret(expiration="2999-01-01T00:00:00Z"), ("system:bootstrappers",)),
    (bootstrap_secret(expiration="soon"), None),
    ({**bootstrap_secret(), "type": "Opaque"}, None),
]


@pytest.mark.parametrize(("secret", "groups"), BOOTSTRAP)
def test_bootstrap_tokens(
    authenticator: authentication.Authenticator, store: FakeStore, secret: Object, groups: tuple[str, ...] | None
) -> None:
    store.add("secrets", secret)
    request = ask("abcdef.0123456789abcdef")
    if groups is None:
        with pytest.raises(errors.ApiError):
            authenticator.authenticate(request)
        return
    assert authenticator.authenticate(request) == UserInfo("system:bootstrap:abcdef", groups=(*groups, AUTHENTICATED))


def test_a_bootstrap_token_that_is_deleted(authenticator: authentication.Authenticator, store: FakeStore) -> None:
    secret = bootstrap_secret()
    secret["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    store.add("secrets", secret)
    with pytest.raises(errors.ApiError):
        authenticator.authenticate(ask("abcdef.0123456789abcdef"))


def token_request(
    authenticator: authentication.Authenticator,
    time: Time,
    spec: Object | None = None,
    metadata: Object | None = None,
    admissions: Admissions | None = None,
    shortest: int = 0,
) -> Object:
    request = Request("POST", "", verb="create", resource="serviceaccounts", subresource="token")
    request.namespace, request.name = "ns", "builder"
    handler = authentication.TokenRequests(authenticator, admissions or Admissions(), time, shortest)
    return handler(request, {"metadata": dict(metadata or {}), "spec": dict(spec or {})})


def test_the_shortest_life_of_a_token_may_be_shorter_still(
    authenticator: authentication.Authenticator, time: Time
) -> None:
    for wanted, given, until in ((601, 601, "08:10:01"), (600, 30, "08:00:30")):
        answer = token_request(authenticator, time, {"expirationSeconds": wanted}, shortest=30)
        assert answer["spec"]["expirationSeconds"] == given
        assert answer["status"]["expirationTimestamp"] == f"2027-01-15T{until}Z"
        assert authenticator.signer.verify(answer["status"]["token"], [ISSUER])["exp"] == time() + given
    with pytest.raises(errors.ApiError):
        token_request(authenticator, time, {"expirationSeconds": 30}, shortest=30)


def bound(kind: str, name: str, uid: str = "") -> Object:
    return {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}


def test_a_token_of_a_pod(authenticator: authentication.Authenticator, time: Time) -> None:
    admissions = Admissions()
    answer = token_request(authenticator, time, bound("Pod", "p", "pod-uid"), admissions=admissions)
    assert admissions.admitted == [(CREATE, "token")]
    assert answer["spec"]["audiences"] == [ISSUER] and answer["spec"]["expirationSeconds"] == 3600
    assert answer["status"]["expirationTimestamp"] == "2027-01-15T09:00:00Z"
    found = authenticator.authenticate(ask(answer["status"]["token"]))
    assert found is not None
    assert (found.name, found.uid) == ("system:serviceaccount:ns:builder", "account-uid")
    assert found.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED)
    extra = {key.partition("/")[2]: values for key, values in found.extra.items()}
    assert extra.pop("credential-id")[0].startswith("JTI=")
    assert extra == {
        "pod-name": ("p",),
        "pod-uid": ("pod-uid",),
        "node-name": ("n1",),
        "node-uid": ("node-uid",),
    }


@pytest.mark.parametrize(
    ("spec", "resource", "name"),
    [
        ({}, "serviceaccounts", "builder"),
        (bound("Pod", "p"), "pods", "p"),
        (bound("Secret", "s"), "secrets", "s"),
        (bound("Node", "n1"), "nodes", "n1"),
    ],
)
def test_a_token_ends_with_what_it_is_bound_to(
    authenticator: authentication.Authenticator, store: FakeStore, time: Time, spec: Object, resource: str, name: str
) -> None:
    request = ask(token_request(authenticator, time, spec)["status"]["token"])
    assert authenticator.authenticate(request)
    namespace = "" if resource == "nodes" else "ns"
    old = store.get(resource, name, namespace)
    for after in (None, {**old, "metadata": {**old["metadata"], "uid": "new"}}):
        store.remove(resource, name, namespace)
        if after is not None:
            store.add(resource, after)
        with pytest.raises(errors.ApiError):
            authenticator.authenticate(request)
        store.add(resource, old)
    assert authenticator.authenticate(request)


def test_a_pod_token_outlives_its_node(
    authenticator: authentication.Authenticator, store: FakeStore, time: Time
) -> None:
    request = ask(token_request(authenticator, time, bound("Pod", "p"))["status"]["token"])
    store.remove("nodes", "n1")
    assert authenticator.authenticate(request)


@pytest.mark.parametrize(
    ("seconds", "spec", "good_for"),
    [
        (600, {}, 600),
        (3600, {}, 3600),
        (3607, {}, 3607),
        # The token that a kubelet requests lives for a year, so that programs that read it only once keep working.
        (3607, bound("Pod", "p"), 365 * 24 * 3600),
        (3607, {**bound("Pod", "p"), "audiences": ["vault", ISSUER]}, 3607),
    ],
)
def test_when_a_token_ends(
    authenticator: authentication.Authenticator, time: Time, seconds: int, spec: Object, good_for: int
) -> None:
    answer = token_request(authenticator, time, {**spec, "expirationSeconds": seconds})
    request = ask(answer["status"]["token"])
    time.now = NOW + good_for - 1
    assert authenticator.authenticate(request)
    time.now = NOW + good_for
    with pytest.raises(errors.ApiError):
        authenticator.authenticate(request)


REFUSALS: list[tuple[Object, Object, int, str]] = [
    (
        {"expirationSeconds": 599},
        {},
        422,
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: '
        "may not specify a duration less than 10 minutes",
    ),
    (
        {"expirationSeconds": (1 << 32) + 1},
        {},
        422,
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: '
        "may not specify a duration larger than 2^32 seconds",
    ),
    (
        {},
        {"name": "other"},
        422,
        'TokenRequest.authentication.k8s.io "builder" is invalid: metadata.name: Invalid value: "other": '
        "must match the service account name if specified",
    ),
    (
        {},
        {"namespace": "other"},
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    (
        {},
        {"uid": "old"},
        409,
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "builder": the UID in the token request '
        "(old) does not match the UID of the service account (account-uid)",
    ),
    (bound("Pod", "none"), {}, 404, 'pods "none" not found'),
    (
        bound("Pod", "q"),
        {},
        400,
        'cannot bind token for serviceaccount "builder" to pod running with different serviceaccount name.',
    ),
    (
        bound("Pod", "p", "old"),
        {},
        409,
        'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (old) does not match the UID '
        "in record. The object might have been deleted and then recreated",
    ),
    (bound("Service", "s"), {}, 400, "cannot bind token to object of type /v1, Kind=Service"),
]


@pytest.mark.parametrize(("spec", "metadata", "code", "message"), REFUSALS)
def test_refused_tokens(
    authenticator: authentication.Authenticator, time: Time, spec: Object, metadata: Object, code: int, message: str
) -> None:
    with pytest.raises(errors.ApiError) as raised:
        token_request(authenticator, time, spec, metadata)
    assert (raised.value.code, raised.value.message) == (code, message)


def test_admission_refuses_a_token(authenticator: authentication.Authenticator, time: Time) -> None:
    admissions = Admissions()
    admissions.error = errors.forbidden("serviceaccounts", "", "builder", "no")
    with pytest.raises(errors.ApiError, match="no"):
        token_request(authenticator, time, admissions=admissions)


def test_token_reviews(authenticator: authentication.Authenticator, time: Time) -> None:
    review = authentication.TokenReviews(authenticator)
    request = Request("POST", "")
    token = token_request(authenticator, time, {"audiences": ["vault", ISSUER]})["status"]["token"]
    status = review(request, {"spec": {"token": token}})["status"]
    assert status["authenticated"] and status["audiences"] == [ISSUER]
    assert status["user"]["username"] == "system:serviceaccount:ns:builder"
    status = review(request, {"spec": {"token": token, "audiences": ["vault", "else"]}})["status"]
    assert status["audiences"] == ["vault"]
    status = review(request, {"spec": {"token": token, "audiences": ["else"]}})["status"]
    assert not status.get("authenticated") and "is invalid for the target audiences" in status["error"]
    status = review(request, {"spec": {"token": "nonsense"}})["status"]
    assert status == {"user": {}, "error": "invalid bearer token"}
    with pytest.raises(errors.ApiError, match="token is required"):
        review(request, {"spec": {}})


def test_self_reviews() -> None:
    request = Request("POST", "", user=UserInfo("ann", "u", ("staff",), {"k": ("v",)}))
    user = authentication.self_subject_reviews(request, {})["status"]["userInfo"]
    assert user == {"username": "ann", "uid": "u", "groups": ["staff"], "extra": {"k": ["v"]}}


IMPERSONATIONS: list[tuple[dict[str, str], tuple[str, tuple[str, ...]]]] = [
    ({"impersonate-user": "bob"}, ("bob", (AUTHENTICATED,))),
    ({"impersonate-user": "bob", "impersonate-group": "a,b"}, ("bob", ("a", "b", AUTHENTICATED))),
    (
        {"impersonate-user": "system:serviceaccount:ns:builder"},
        (
            "system:serviceaccount:ns:builder",
            ("system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED),
        ),
    ),
    ({"impersonate-user": "system:anonymous"}, ("system:anonymous", ("system:unauthenticated",))),
]


@pytest.mark.parametrize(("headers", "expected"), IMPERSONATIONS)
def test_impersonation(
    authenticator: authentication.Authenticator, headers: dict[str, str], expected: tuple[str, tuple[str, ...]]
) -> None:
    authenticator.static_tokens["root"] = UserInfo("root", groups=("system:masters",))
    found = authenticator.authenticate(ask("root", headers=headers))
    assert found is not None and (found.name, found.groups) == expected
    with pytest.raises(errors.ApiError) as raised:
        authenticator.authenticate(ask("static-token", headers=headers))
    assert raised.value.code == 403
