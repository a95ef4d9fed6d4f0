"""Test the cache of token authentication."""

from __future__ import annotations

import contextlib
import datetime
import queue

import pytest
from framework.waiting import wait_for, wait_until_equal

from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication.request import bearertoken
from pkg.apiserver.authentication.testing import FakeToken, response
from pkg.apiserver.authentication.token.cache import CachedTokenAuthenticator, cached_token_authenticator, stats
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang import http
from pkg.golang.http.testing import connect, serving
from pkg.golang.testing import frames_kept_after

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


def test_answer_used_least_recently_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_token_authenticator, "_MAX_ENTRIES", 2)
    tokens = FakeToken()
    cached = CachedTokenAuthenticator(tokens, 60.0, 60.0)
    for token in ("a", "b", "c", "b", "a"):
        cached.authenticate_token(CTX, token)
    assert tokens.asked == ["a", "b", "c", "a"]


def test_many_at_once_are_one_question() -> None:
    tokens = FakeToken({"good": JOE})
    tokens.gate = golang.Channel()
    cached = CachedTokenAuthenticator(tokens, 60.0, 60.0)
    answers: list[authenticator.Response | None] = []
    threads = [
        golang.go(lambda: answers.append(cached.authenticate_token(CTX, "good")), name=f"asks-{i}") for i in range(5)
    ]
    tokens.gate.close()
    for thread in threads:
        thread.join(30)
    assert answers == [JOE] * 5
    assert tokens.asked == ["good"]


def _ask(cached: CachedTokenAuthenticator, ctx: golang.Context) -> queue.Queue[object]:
    """Present the token "good" as a separate client, and return a queue for the response or the exception."""
    outcome: queue.Queue[object] = queue.Queue()

    def ask() -> None:
        try:
            outcome.put(cached.authenticate_token(ctx, "good"))
        except golang.ContextError as err:
            outcome.put(err)

    golang.go(ask, name="asks")
    return outcome


def test_client_that_goes_is_answered_no_more_and_others_are() -> None:
    tokens = FakeToken({"good": JOE})
    tokens.gate = golang.Channel()
    cached = CachedTokenAuthenticator(tokens, 60.0, 60.0)
    first_ctx, first_goes = golang.with_cancel(CTX)
    second_ctx, second_goes = golang.with_cancel(CTX)
    first = _ask(cached, first_ctx)
    wait_for("the token is asked for", lambda: tokens.asked == ["good"])
    second, third = _ask(cached, second_ctx), _ask(cached, CTX)
    second_goes()
    assert isinstance(second.get(timeout=30), golang.Canceled)
    assert tokens.asked == ["good"]
    first_goes()
    assert isinstance(first.get(timeout=30), golang.Canceled)
    tokens.gate.close()
    assert third.get(timeout=30) == JOE


def test_client_that_goes_leaves_nothing() -> None:
    ctx, go = golang.with_cancel(CTX)

    class Goes:
        def authenticate_token(self, ctx: golang.Context, token: str) -> authenticator.Response | None:
            go()
            raise authenticator.AuthenticationError("context canceled")

    cached = CachedTokenAuthenticator(Goes(), 60.0, 60.0)
    assert frames_kept_after(lambda: cached.authenticate_token(ctx, "good")) == []


def test_connections_that_made_way_do_not_wait_for_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_token_authenticator, "_SHARED_LOOKUP_TIMEOUT", 3600.0)
    tokens, limits = FakeToken(), http.Limits(unauthenticated_per_source=2)
    tokens.gate = golang.Channel()
    auth = bearertoken.Authenticator(CachedTokenAuthenticator(tokens, 60.0, 60.0))

    def handle(w: http.ResponseWriter, r: http.Request) -> None:
        auth.authenticate_request(r)

    with serving(handle, authenticates=True, limits=limits) as server, contextlib.ExitStack() as clients:
        clients.callback(tokens.gate.close)
        for number in range(6):
            client = clients.enter_context(connect(server))
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %d\r\n\r\n" % number)
            wait_until_equal("tokens asked for", lambda: len(tokens.asked), number + 1)
        wait_for("two connections are left", lambda: server.connections() == 2)


def test_tokens_are_not_kept_in_memory() -> None:
    cached = CachedTokenAuthenticator(FakeToken({"good": JOE}), 60.0, 60.0)
    cached.authenticate_token(CTX, "good")
    assert "good" not in repr(cached._cache._entries)
    assert cached._key("good") != CachedTokenAuthenticator(FakeToken(), 1.0, 1.0)._key("good")


def test_metrics_move() -> None:
    cached = CachedTokenAuthenticator(FakeToken({"good": JOE}), 60.0, 60.0)
    with (
        metricstesting.moves(stats.REQUEST_COUNT.labels(stats.HIT), 2),
        metricstesting.moves(stats.REQUEST_COUNT.labels(stats.MISS), 1),
        metricstesting.moves(stats.FETCH_COUNT.labels(stats.FETCH_OK), 1),
    ):
        for _ in range(3):
            cached.authenticate_token(CTX, "good")
