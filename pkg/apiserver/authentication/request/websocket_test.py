"""Test tokens among the subprotocols of a WebSocket."""

from __future__ import annotations

import base64

import pytest

from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication.request import websocket
from pkg.apiserver.authentication.testing import FakeToken, response
from pkg.golang import http
from pkg.golang.http.testing import request

JOE = response("joe")


def encoded(token: bytes) -> str:
    return "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(token).decode().rstrip("=")


TOKEN = encoded(b"token")


def ask(protocols: list[str], **headers: str) -> tuple[authenticator.Response | None, http.Request]:
    req = request("GET", "/", headers={"Connection": "Upgrade", "Upgrade": "websocket", **headers})
    for protocol in protocols:
        req.headers.add("Sec-WebSocket-Protocol", protocol)
    return websocket.ProtocolAuthenticator(FakeToken({"token": JOE})).authenticate_request(req), req


@pytest.mark.parametrize(
    "protocols", [[f"{TOKEN}, v5.channel.k8s.io"], ["v5.channel.k8s.io", TOKEN], [f" {TOKEN} ,v5.channel.k8s.io"]]
)
def test_good_token(protocols: list[str]) -> None:
    answer, req = ask(protocols)
    assert answer == JOE
    assert req.headers.get_all("Sec-WebSocket-Protocol") == ["v5.channel.k8s.io"]


def test_no_token() -> None:
    assert ask(["v5.channel.k8s.io"])[0] is None
    assert ask([f"{encoded(b'')},other"])[0] is None
    assert ask([f"{TOKEN},other"], Upgrade="SPDY/3.1")[0] is None


@pytest.mark.parametrize(
    ("protocols", "message"),
    [
        ([TOKEN], "missing additional subprotocol"),
        ([f"{TOKEN},{TOKEN},other"], "multiple"),
        ([f"{encoded(b'guessed')},other"], "invalid bearer token"),
        ([f"{TOKEN}!,other"], "invalid base64.bearer.authorization token encoding"),
        ([f"{TOKEN}=,other"], "invalid base64.bearer.authorization token encoding"),
        ([f"{encoded(bytes([0xFF]))},other"], "invalid base64.bearer.authorization token$"),
    ],
)
def test_faults(protocols: list[str], message: str) -> None:
    with pytest.raises(authenticator.AuthenticationError, match=message):
        ask(protocols)
