"""Test the configuration of the server's authentication and authorization.

Go: cmd/kubelet/app/auth.go
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for
from kubelet_cmd.kubelet.app import auth as appauth
from kubelet_cmd.kubelet.app import options

from kubelet.apis import config as kubeletconfig
from kubelet.server import auth
from pkg import golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.authorization import v1 as authorizationv1
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authorization import authorizer
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.component_base.metrics import legacyregistry
from pkg.golang.http.testing import request
from pkg.golang.testing import Issuer, der, pem, subject

CTX = golang.background()


def configuration(
    ca_file: Path | None = None, webhook: bool = True, anonymous: bool = False, mode: str = "Webhook"
) -> kubeletconfig.KubeletConfiguration:
    kc = options.new_kubelet_configuration()
    kc.authentication.x509.client_ca_file = str(ca_file or "")
    kc.authentication.webhook.enabled = webhook
    kc.authentication.anonymous.enabled = anonymous
    kc.authorization.mode = mode
    return kc


class APIServer:
    """Know the token "good" of the user Ann, and allow Ann to read the node's metrics."""

    def __init__(self) -> None:
        self.client = FakeClientset()
        self.client.prepend_reactor("create", "tokenreviews", self._review_token)
        self.client.prepend_reactor("create", "subjectaccessreviews", self._review_access)

    def _review_token(self, action: Any) -> tuple[bool, Any]:
        status = authenticationv1.TokenReviewStatus()
        if action.object.spec.token == "good":
            user = authenticationv1.UserInfo(username="ann", groups=["readers"])
            status = authenticationv1.TokenReviewStatus(authenticated=True, user=user)
        return True, authenticationv1.TokenReview(status=status)

    def _review_access(self, action: Any) -> tuple[bool, Any]:
        spec = action.object.spec
        wanted = spec.resource_attributes
        allowed = spec.user == "ann" and (wanted.verb, wanted.subresource) == ("get", "metrics")
        return True, authorizationv1.SubjectAccessReview(
            status=authorizationv1.SubjectAccessReviewStatus(allowed=allowed)
        )


def name_of(kubelet_auth: auth.KubeletAuth, **how: Any) -> str | None:
    """Return the name of the user, or None if the request has no valid credentials."""
    response = kubelet_auth.authenticate_request(request("GET", "/metrics", **how))
    return response.user.name if response else None


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    return tmp_path / "ca.crt"


def test_certificates_tokens_and_anonymous(ca_file: Path) -> None:
    root = Issuer()
    ca_file.write_bytes(pem(root.cert))
    kubelet_auth, _ = appauth.build_auth("n", APIServer().client, configuration(ca_file, anonymous=True))
    joe = [der(root.issue(subject("joe"))[0])]
    stranger = [der(Issuer().issue(subject("joe"))[0])]
    good, bad = {"Authorization": "Bearer good"}, {"Authorization": "Bearer guessed"}

    assert name_of(kubelet_auth, peer_certificates=joe) == "joe"
    assert name_of(kubelet_auth, headers=good) == "ann"
    assert name_of(kubelet_auth, headers=good, peer_certificates=stranger) == "ann"
    assert name_of(kubelet_auth, headers=bad, peer_certificates=joe) == "joe"
    assert name_of(kubelet_auth) == "system:anonymous"
    for wrong in ({"headers": bad}, {"peer_certificates": stranger}):
        with pytest.raises(authenticator.AuthenticationError):
            name_of(kubelet_auth, **wrong)
    response = kubelet_auth.authenticate_request(request("GET", "/", headers=good))
    assert response is not None and response.user.groups == ("readers", "system:authenticated")


def test_nobody_is_anonymous(ca_file: Path) -> None:
    ca_file.write_bytes(pem(Issuer().cert))
    kubelet_auth, _ = appauth.build_auth("n", APIServer().client, configuration(ca_file))
    assert name_of(kubelet_auth) is None


def test_the_api_server_decides() -> None:
    kubelet_auth, _ = appauth.build_auth("n", APIServer().client, configuration())
    headers = {"Authorization": "Bearer good"}
    response = kubelet_auth.authenticate_request(request("GET", "/", headers=headers))
    assert response is not None
    decisions = {}
    for path in ("/metrics", "/pods"):
        attributes = kubelet_auth.get_request_attributes(response.user, request("GET", path))
        decisions[path] = [kubelet_auth.authorize(CTX, each)[0] for each in attributes]
    no = authorizer.Decision.NO_OPINION
    assert decisions == {"/metrics": [authorizer.Decision.ALLOW], "/pods": [no, no]}


def test_questions_to_the_api_server_are_counted() -> None:
    kubelet_auth, _ = appauth.build_auth("n", APIServer().client, configuration())
    names = ("apiserver_delegated_authn_request", "apiserver_delegated_authz_request")

    def counts() -> list[float]:
        registry = legacyregistry.DEFAULT_GATHERER
        return [
            registry.get_sample_value(f"{name}_{what}", {"code": "201"}) or 0.0
            for name in names
            for what in ("total", "duration_seconds_count")
        ]

    before = counts()
    response = kubelet_auth.authenticate_request(request("GET", "/", headers={"Authorization": "Bearer good"}))
    assert response is not None
    [attributes] = kubelet_auth.get_request_attributes(response.user, request("GET", "/metrics"))
    for _ in range(2):
        kubelet_auth.authorize(CTX, attributes)
    assert counts() == [count + 1 for count in before]


def test_always_allow() -> None:
    kubelet_auth, _ = appauth.build_auth("n", None, configuration(webhook=False, anonymous=True, mode="AlwaysAllow"))
    response = kubelet_auth.authenticate_request(request("GET", "/"))
    assert response is not None
    [attributes] = kubelet_auth.get_request_attributes(response.user, request("POST", "/exec/a/b/c"))
    assert kubelet_auth.authorize(CTX, attributes) == (authorizer.Decision.ALLOW, "")


@pytest.mark.parametrize(
    ("kc", "message"),
    [
        (configuration(mode="AlwaysAllow"), "no client provided, cannot use webhook authentication"),
        (configuration(webhook=False, anonymous=True), "no client provided, cannot use webhook authorization"),
        (configuration(webhook=False), "no authentication method configured"),
        (configuration(webhook=False, anonymous=True, mode=""), "no authorization mode specified"),
        (configuration(webhook=False, anonymous=True, mode="RBAC"), "unknown authorization mode RBAC"),
    ],
)
def test_configurations_that_cannot_be_followed(kc: kubeletconfig.KubeletConfiguration, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        appauth.build_auth("n", None, kc)


@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_faulty_authorities(ca_file: Path, content: bytes | None) -> None:
    if content is not None:
        ca_file.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=str(ca_file)):
        appauth.build_auth("n", None, configuration(ca_file, webhook=False, mode="AlwaysAllow"))


def test_authorities_are_read_again(ctx: golang.Context, ca_file: Path) -> None:
    old, new = Issuer(), Issuer()
    ca_file.write_bytes(pem(old.cert))
    kubelet_auth, run = appauth.build_auth("n", None, configuration(ca_file, webhook=False, mode="AlwaysAllow"))
    run(ctx)
    joe = {"peer_certificates": [der(new.issue(subject("joe"))[0])]}
    with pytest.raises(authenticator.AuthenticationError):
        name_of(kubelet_auth, **joe)

    fresh = ca_file.with_suffix(".new")
    fresh.write_bytes(pem(old.cert, new.cert))
    os.replace(fresh, ca_file)
    current = kubelet_auth.client_ca_provider.current_ca_bundle_content
    wait_for("the server accepts both authorities", lambda: current() == pem(old.cert, new.cert), 10)
    assert name_of(kubelet_auth, **joe) == "joe"

    ca_file.write_bytes(b"nonsense")
    ca_file.write_bytes(pem(new.cert))
    wait_for("the server accepts only the new authority", lambda: current() == pem(new.cert), 10)
    with pytest.raises(authenticator.AuthenticationError):
        name_of(kubelet_auth, peer_certificates=[der(old.issue(subject("joe"))[0])])
