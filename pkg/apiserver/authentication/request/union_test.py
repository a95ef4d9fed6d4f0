"""Test the combination of several authenticators."""

from __future__ import annotations

import pytest

from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.authentication.group import AuthenticatedGroupAdder
from pkg.apiserver.authentication.request import anonymous, union
from pkg.apiserver.authentication.testing import FakeRequest, response
from pkg.golang import http
from pkg.golang.http.testing import request
from pkg.golang.testing import frames_kept_after

REQUEST = request("GET", "/")
JOE, ANN = response("joe"), response("ann")


def broken(text: str) -> FakeRequest:
    return FakeRequest(err=authenticator.AuthenticationError(text))


def test_first_that_knows_decides() -> None:
    last = FakeRequest(ANN)
    handler = union.UnionAuthRequestHandler(FakeRequest(), broken("x"), FakeRequest(JOE), last)
    assert handler.authenticate_request(REQUEST) == JOE
    assert last.asked == 0


def test_nobody_knows() -> None:
    assert union.UnionAuthRequestHandler(FakeRequest(), FakeRequest()).authenticate_request(REQUEST) is None


@pytest.mark.parametrize(("texts", "message"), [(["a"], "^a$"), (["a", "b"], r"^\[a, b\]$")])
def test_errors_are_told_if_nobody_knows(texts: list[str], message: str) -> None:
    handler = union.UnionAuthRequestHandler(FakeRequest(), *map(broken, texts))
    with pytest.raises(authenticator.AuthenticationError, match=message):
        handler.authenticate_request(REQUEST)


def test_fail_on_error() -> None:
    last = FakeRequest(ANN)
    handler = union.UnionAuthRequestHandler(broken("a"), last, fail_on_error=True)
    with pytest.raises(authenticator.AuthenticationError, match=r"^a$"):
        handler.authenticate_request(REQUEST)
    assert last.asked == 0


def test_anonymous() -> None:
    answer = anonymous.Authenticator().authenticate_request(REQUEST)
    assert answer.user == userinfo.Info("system:anonymous", groups=("system:unauthenticated",))


@pytest.mark.parametrize(
    ("answer", "groups"),
    [
        (response("joe", "cooks"), ("cooks", "system:authenticated")),
        (response("joe", "system:authenticated"), ("system:authenticated",)),
        (response("joe", "system:unauthenticated"), ("system:unauthenticated",)),
        (response("system:anonymous"), ()),
    ],
)
def test_group_adder(answer: authenticator.Response, groups: tuple[str, ...]) -> None:
    added = AuthenticatedGroupAdder(FakeRequest(answer)).authenticate_request(REQUEST)
    assert added is not None and (added.user.name, added.user.groups) == (answer.user.name, groups)


def test_group_adder_adds_nothing_to_nobody() -> None:
    assert AuthenticatedGroupAdder(FakeRequest()).authenticate_request(REQUEST) is None


class _Refuses:
    """Raise a new error for each request."""

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        raise authenticator.AuthenticationError("invalid bearer token")


@pytest.mark.parametrize("count", [1, 2])
def test_refusal_keeps_nothing_of_the_request(count: int) -> None:
    handler = union.UnionAuthRequestHandler(*[_Refuses()] * count)
    assert frames_kept_after(lambda: handler.authenticate_request(REQUEST)) == []
