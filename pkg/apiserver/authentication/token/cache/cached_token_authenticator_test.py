"""Tests of what is remembered about tokens."""

from __future__ import annotations

import datetime
import threading

import pytest

from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication.testing import FakeToken, response
from pkg.apiserver.authentication.token.cache import CachedTokenAuthenticator, stats

CTX = golang.background()
JOE = response("joe")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_answers_are_kept_for_their_time() -> None:
    tokens, clock = FakeToken({"good": JOE}), FakeClock(START)
    cached = CachedTokenAuthenticator(tokens, 60.0, 5.0, clock)
    for _ in range(2):
        assert cached.authenticate_token(CTX, "good") == JOE
        assert cached.authenticate_token(CTX, "bad") is None
    assert tokens.asked == ["good", "bad"]

    clock.step(6)
    tokens.users["bad"] = JOE
    assert cached.authenticate_token(CTX, "good") == JOE
    assert cached.authenticate_token(CTX, "bad") == JOE
    assert tokens.asked == ["good", "bad", "bad"]

    clock.step(61)
    tokens.users.clear()
    assert cached.authenticate_token(CTX, "good") is None


def test_errors_are_not_kept() -> None:
    tokens = FakeToken({"good": JOE})
    cached = CachedTokenAuthenticator(tokens, 60.0, 60.0)
    tokens.err = authenticator.AuthenticationError("nobody to ask")
    with pytest.raises(authenticator.AuthenticationError, match="nobody to ask"):
        cached.authenticate_token(CTX, "good")
    tokens.err = None
    assert cached.authenticate_token(CTX, "good") == JOE


def test_a_time_of_zero_keeps_nothing() -> None:
    tokens = FakeToken({"good": JOE})
    cached = CachedTokenAuthenticator(tokens, 0.0, 0.0)
    for token in ("good", "bad", "good", "bad"):
        cached.authenticate_token(CTX, token)
    assert tokens.asked == ["good", "bad", "good", "bad"]


def test_many_at_once_are_one_question() -> None:
    tokens = FakeToken({"good": JOE})
    tokens.gate = threading.Event()
    cached = CachedTokenAuthenticator(tokens, 60.0, 60.0)
    answers: list[authenticator.Response | None] = []
    threads = [
        golang.go(lambda: answers.append(cached.authenticate_token(CTX, "good")), name=f"asks-{i}") for i in range(5)
    ]
    tokens.gate.set()
    for thread in threads:
        thread.join(30)
    assert answers == [JOE] * 5
    assert tokens.asked == ["good"]


def test_tokens_are_not_kept_in_memory() -> None:
    cached = CachedTokenAuthenticator(FakeToken({"good": JOE}), 60.0, 60.0)
    cached.authenticate_token(CTX, "good")
    assert "good" not in repr(cached._cache._entries)
    assert cached._key("good") != CachedTokenAuthenticator(FakeToken(), 1.0, 1.0)._key("good")


def test_metrics_move() -> None:
    before = {status: stats.REQUEST_COUNT.labels(status)._value.get() for status in (stats.HIT, stats.MISS)}
    fetched = stats.FETCH_COUNT.labels(stats.FETCH_OK)._value.get()
    cached = CachedTokenAuthenticator(FakeToken({"good": JOE}), 60.0, 60.0)
    for _ in range(3):
        cached.authenticate_token(CTX, "good")
    after = {status: stats.REQUEST_COUNT.labels(status)._value.get() for status in (stats.HIT, stats.MISS)}
    assert (after[stats.HIT] - before[stats.HIT], after[stats.MISS] - before[stats.MISS]) == (2, 1)
    assert stats.FETCH_COUNT.labels(stats.FETCH_OK)._value.get() - fetched == 1
