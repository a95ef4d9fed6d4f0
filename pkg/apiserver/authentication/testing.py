"""Provide fake authenticators for tests."""

from __future__ import annotations

from pkg import golang
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.golang import http


def response(name: str, *groups: str) -> authenticator.Response:
    return authenticator.Response(userinfo.Info(name, groups=groups))


class FakeRequest:
    """Return a fixed response or raise a fixed error for every request."""

    def __init__(self, answer: authenticator.Response | None = None, err: Exception | None = None) -> None:
        self.answer = answer
        self.err = err
        self.asked = 0

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        self.asked += 1
        if self.err is not None:
            raise self.err
        return self.answer


class FakeToken:
    """Authenticate a fixed set of tokens.

    If `gate` is set, calls wait until the channel is closed or the caller's ctx ends.
    """

    def __init__(self, users: dict[str, authenticator.Response] | None = None) -> None:
        self.users = users or {}
        self.err: Exception | None = None
        self.gate: golang.Channel[None] | None = None
        self.asked: list[str] = []

    def authenticate_token(self, ctx: golang.Context, token: str) -> authenticator.Response | None:
        self.asked.append(token)
        if self.gate is not None and golang.select(self.gate, ctx.done()).took(ctx.done()):
            raise authenticator.AuthenticationError(str(ctx.err()))
        if self.err is not None:
            raise self.err
        return self.users.get(token)
