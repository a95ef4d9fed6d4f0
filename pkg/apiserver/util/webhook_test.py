"""Test calls of another server with retries."""

from __future__ import annotations

import errno

import pytest

from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.util import wait
from pkg.apiserver.util import webhook

CTX = golang.background()
BACKOFF = wait.Backoff(duration=0.0, factor=1.5, steps=5)

RETRIED = [
    ConnectionResetError(errno.ECONNRESET, "connection reset by peer"),
    apierrors.new_internal_error("etcd is away"),
    apierrors.new_timeout_error("slow", 0),
    apierrors.new_too_many_requests("busy", 1),
    apierrors.new_server_timeout("tokenreviews", "create", 1),
]
FINAL = [
    apierrors.new_forbidden("tokenreviews", "", "no"),
    apierrors.new_unauthorized("who are you"),
    apierrors.new_not_found("tokenreviews", "x"),
    ConnectionRefusedError("refused"),
]


class Fails:
    """Raise the error the first `times` times."""

    def __init__(self, err: Exception, times: int) -> None:
        self.err, self.times, self.calls = err, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.err
        return "done"


@pytest.mark.parametrize("err", RETRIED, ids=str)
def test_faults_that_pass_are_tried_again(err: Exception) -> None:
    fails = Fails(err, times=4)
    assert webhook.with_exponential_backoff(CTX, BACKOFF, fails) == "done"
    assert (fails.calls, BACKOFF.steps) == (5, 5)


@pytest.mark.parametrize("err", FINAL, ids=str)
def test_other_faults_are_not(err: Exception) -> None:
    fails = Fails(err, times=1)
    with pytest.raises(type(err)):
        webhook.with_exponential_backoff(CTX, BACKOFF, fails)
    assert fails.calls == 1


def test_gives_up_after_the_last_step() -> None:
    fails = Fails(RETRIED[0], times=9)
    with pytest.raises(ConnectionResetError):
        webhook.with_exponential_backoff(CTX, BACKOFF, fails)
    assert fails.calls == 5


def test_ends_with_the_context() -> None:
    ctx, cancel = golang.with_cancel(CTX)
    cancel()
    fails = Fails(RETRIED[0], times=9)
    with pytest.raises(ConnectionResetError):
        webhook.with_exponential_backoff(ctx, wait.Backoff(duration=600.0, steps=5), fails)
    assert fails.calls == 1


def test_timed() -> None:
    recorded: list[str] = []

    def record(code: str, seconds: float) -> None:
        recorded.append(code)
        assert seconds >= 0

    webhook.timed(lambda: "created", record)
    for err in (apierrors.new_forbidden("x", "", "no"), ConnectionRefusedError("refused")):
        with pytest.raises(type(err)):
            webhook.timed(Fails(err, times=1), record)
    assert recorded == ["201", "403", "<error>"]
