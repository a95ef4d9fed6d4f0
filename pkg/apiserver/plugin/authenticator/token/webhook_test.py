"""Test token reviews by the API server."""

from __future__ import annotations

from typing import Any

import pytest

from pkg import golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.util import wait
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.plugin.authenticator.token import webhook
from pkg.client_go.kubernetes.testing import FakeClientset

CTX = golang.background()

Status = authenticationv1.TokenReviewStatus


def ask(answer: Any, recorded: list[str]) -> tuple[authenticator.Response | None, FakeClientset]:
    client = FakeClientset()

    def reaction(action: Any) -> tuple[bool, Any]:
        if isinstance(answer, Exception):
            return True, answer
        return True, authenticationv1.TokenReview(spec=action.object.spec, status=answer)

    client.prepend_reactor("create", "tokenreviews", reaction)
    auth = webhook.WebhookTokenAuthenticator(
        client.authentication_v1.token_reviews(),
        wait.Backoff(duration=0.0, steps=3),
        lambda code, seconds: recorded.append(code),
    )
    return auth.authenticate_token(CTX, "token"), client


def test_whose_a_token_is() -> None:
    user = authenticationv1.UserInfo(username="joe", uid="1", groups=["a", "b"], extra={"x": ["y"]})
    recorded: list[str] = []
    response, client = ask(Status(authenticated=True, user=user), recorded)
    assert response == authenticator.Response(userinfo.Info("joe", "1", ("a", "b"), {"x": ["y"]}))
    [action] = client.actions("create", "tokenreviews")
    assert action.object.spec == authenticationv1.TokenReviewSpec(token="token")
    assert recorded == ["201"]


def test_nobodys_token() -> None:
    user = authenticationv1.UserInfo(username="joe")
    assert ask(Status(authenticated=False, user=user), [])[0] is None


def test_why_a_token_is_nobodys() -> None:
    with pytest.raises(authenticator.AuthenticationError, match="token has expired"):
        ask(Status(authenticated=False, error="token has expired"), [])


@pytest.mark.parametrize(
    ("err", "codes"),
    [
        (apierrors.new_forbidden("tokenreviews", "", "no"), ["403"]),
        (apierrors.new_internal_error("etcd is away"), ["500"] * 3),
        (ConnectionRefusedError("connection refused"), ["<error>"]),
        (golang.DeadlineExceeded(), ["<error>"]),
    ],
    ids=str,
)
def test_no_answer(err: Exception, codes: list[str]) -> None:
    recorded: list[str] = []
    with pytest.raises(authenticator.AuthenticationError):
        ask(err, recorded)
    assert recorded == codes
