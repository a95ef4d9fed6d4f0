"""Test tokens in the Authorization header."""

from __future__ import annotations

import pytest

from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication.request import bearertoken
from pkg.apiserver.authentication.testing import FakeToken, response
from pkg.golang.http.testing import request

JOE = response("joe")


@pytest.mark.parametrize("header", ["Bearer token", "bearer token", "BEARER token trailing", "  Bearer token "])
def test_good_token(header: str) -> None:
    req = request("GET", "/", headers={"Authorization": header})
    assert bearertoken.Authenticator(FakeToken({"token": JOE})).authenticate_request(req) == JOE
    assert "Authorization" not in req.headers


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer  token", "Basic am9lOg==", "token", "Bearer\tx"])
def test_no_token(header: str) -> None:
    tokens = FakeToken({"token": JOE})
    req = request("GET", "/", headers={"Authorization": header})
    assert bearertoken.Authenticator(tokens).authenticate_request(req) is None
    assert tokens.asked == []


def test_bad_token() -> None:
    tokens = FakeToken()
    req = request("GET", "/", headers={"Authorization": "Bearer guessed"})
    with pytest.raises(authenticator.AuthenticationError, match="invalid bearer token"):
        bearertoken.Authenticator(tokens).authenticate_request(req)
    assert req.headers.get("Authorization") == "Bearer guessed"
    tokens.err = authenticator.AuthenticationError("nobody to ask")
    with pytest.raises(authenticator.AuthenticationError, match="nobody to ask"):
        bearertoken.Authenticator(tokens).authenticate_request(req)
