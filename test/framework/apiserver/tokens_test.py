from __future__ import annotations

from pathlib import Path

import pytest

from framework.apiserver import tokens

ACCOUNT = {"metadata": {"name": "builder", "namespace": "ns", "uid": "u1"}}
POD = {"metadata": {"name": "p", "uid": "u2"}}
NOW = 1_800_000_000.0


def claims(**changes: object) -> tokens.Claims:
    return {**tokens.claims_for("here", ACCOUNT, ["api"], 600, {"pod": POD}, NOW), **changes}


def test_claims() -> None:
    found = claims()
    assert found["sub"] == "system:serviceaccount:ns:builder"
    assert found["exp"] - found["iat"] == 600
    assert found["kubernetes.io"] == {
        "namespace": "ns",
        "serviceaccount": {"name": "builder", "uid": "u1"},
        "pod": {"name": "p", "uid": "u2"},
    }


CHECKS: list[tuple[str, dict[str, object], float, str | None]] = [
    ("good", {}, NOW, None),
    ("good for one more second", {}, NOW + 599, None),
    ("over", {}, NOW + 600, "service account token has expired"),
    ("early", {}, NOW - 10, "service account token is not valid yet"),
    ("for others", {"aud": ["them"]}, NOW, r'token audiences \["them"\] is invalid for the target audiences \["api"\]'),
]


@pytest.mark.parametrize(("changes", "now", "error"), [row[1:] for row in CHECKS], ids=[row[0] for row in CHECKS])
def test_verify(changes: dict[str, object], now: float, error: str | None) -> None:
    signer = tokens.TokenSigner(issuer="here", now=lambda: now)
    token = signer.sign(claims(**changes))
    assert signer.issued(token)
    if error is None:
        assert signer.verify(token, ["api"])["sub"] == "system:serviceaccount:ns:builder"
        return
    with pytest.raises(tokens.TokenError, match=error):
        signer.verify(token, ["api"])


def test_the_token_of_another_server() -> None:
    theirs = tokens.TokenSigner(issuer="here", now=lambda: NOW).sign(claims())
    with pytest.raises(tokens.TokenError, match="invalid signature"):
        tokens.TokenSigner(issuer="here", now=lambda: NOW).verify(theirs, ["api"])


def test_a_forged_token() -> None:
    signer = tokens.TokenSigner(issuer="here", now=lambda: NOW)
    head, _, signature = signer.sign(claims()).split(".")
    forged = signer.sign(claims(sub="system:serviceaccount:kube-system:admin")).split(".")[1]
    with pytest.raises(tokens.TokenError, match="invalid signature"):
        signer.verify(f"{head}.{forged}.{signature}", ["api"])


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "e30.e30.", "....", "abcdef.0123456789abcdef"])
def test_what_is_no_token(token: str) -> None:
    signer = tokens.TokenSigner()
    assert not signer.issued(token)
    with pytest.raises(tokens.TokenError):
        signer.verify(token, ["api"])


def test_the_key_is_kept(tmp_path: Path) -> None:
    first = tokens.TokenSigner.load_or_create(tmp_path)
    token = first.sign({**claims(), "exp": 1 << 40, "nbf": 0})
    assert tokens.TokenSigner.load_or_create(tmp_path).verify(token, ["api"])
