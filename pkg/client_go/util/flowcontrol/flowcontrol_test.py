"""Test backoffs and token buckets on a fake clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pkg import golang
from pkg.apimachinery.clock import testing
from pkg.client_go.util import flowcontrol
from pkg.golang.testing import frames_kept_after

WAIT = 30.0


def test_back_off_doubles_up_to_the_maximum() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(1, 10, clock)
    pauses = []
    for _ in range(6):
        backoff.next("id", clock.now())
        pauses.append(backoff.get("id"))
        clock.step(1)
    assert pauses == [1, 2, 4, 8, 10, 10]
    assert backoff.get("other") == 0


def test_until_says_when_the_pause_ends() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(10, 300, clock)
    assert backoff.until("id") is None
    backoff.next("id", clock.now())
    failed_at = clock.now()
    clock.step(4)
    assert backoff.until("id") == failed_at + timedelta(seconds=10)


def test_back_off_starts_again_after_twice_the_maximum() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(1, 10, clock)
    backoff.next("id", clock.now())
    clock.step(20)
    backoff.next("id", clock.now())
    assert backoff.get("id") == 2, "exactly twice is not yet past"
    clock.step(20.5)
    assert not backoff.is_in_back_off_since_update("id", clock.now())
    backoff.next("id", clock.now())
    assert backoff.get("id") == 1


def test_has_expired_func_decides() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(1, 10, clock)
    backoff.has_expired_func = lambda event, last, most: (event - last).total_seconds() > most / 2
    backoff.next("id", clock.now())
    clock.step(6)
    backoff.next("id", clock.now())
    assert backoff.get("id") == 1


def test_is_in_back_off_since() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(4, 100, clock)
    failed = clock.now()
    assert not backoff.is_in_back_off_since("id", failed)
    backoff.next("id", failed)
    clock.step(3)
    assert backoff.is_in_back_off_since("id", failed)
    assert backoff.is_in_back_off_since_update("id", clock.now())
    clock.step(1)
    assert not backoff.is_in_back_off_since("id", failed)
    assert not backoff.is_in_back_off_since_update("id", clock.now())
    assert backoff.is_in_back_off_since("id", failed + timedelta(seconds=2)), "a later event counts from then"


def test_a_back_off_ends_when_the_clock_is_set_back() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(4, 100, clock)
    failed = clock.now()
    backoff.next("id", failed)
    clock.set_time(failed - timedelta(hours=1))
    assert not backoff.is_in_back_off_since("id", failed)
    assert not backoff.is_in_back_off_since_update("id", clock.now())


def test_reset_and_gc() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(1, 10, clock)
    for id in ("reset", "old", "new"):
        backoff.next(id, clock.now())
    backoff.reset("reset")
    clock.step(15)
    backoff.next("new", clock.now())
    clock.step(10)
    backoff.gc()
    assert [backoff.get(id) for id in ("reset", "old", "new")] == [0, 0, 2]


def test_jitter_lengthens_the_pause() -> None:
    clock = testing.FakeClock()
    backoff = flowcontrol.Backoff(10, 100, clock, max_jitter_factor=0.5)
    backoff.next("id", clock.now())
    assert 10 <= backoff.get("id") <= 15


def test_token_bucket() -> None:
    clock = testing.FakeClock()
    limiter = flowcontrol.TokenBucketRateLimiter(2, 3, clock)
    assert [limiter.try_accept() for _ in range(4)] == [True, True, True, False]
    clock.step(0.5)
    assert [limiter.try_accept() for _ in range(2)] == [True, False]
    clock.step(100)
    assert [limiter.try_accept() for _ in range(4)] == [True, True, True, False]


def test_token_bucket_makes_the_caller_wait() -> None:
    clock = testing.FakeClock()
    limiter = flowcontrol.TokenBucketRateLimiter(2, 1, clock)
    limiter.wait(golang.background())
    got: golang.Channel[float] = golang.Channel(1)

    def accept() -> None:
        limiter.wait(golang.background())
        got.send(clock.monotonic())

    thread = golang.go(accept, name="caller")
    clock.wait_for_waiters()
    clock.step(0.4)
    assert len(got) == 0
    clock.step(0.1)
    assert got.recv(WAIT) == (0.5, True)
    thread.join(WAIT)


def test_token_bucket_gives_back_what_a_cancelled_caller_reserved() -> None:
    clock = testing.FakeClock()
    limiter = flowcontrol.TokenBucketRateLimiter(1, 1, clock)
    limiter.wait(golang.background())
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        limiter.wait(ctx)
    assert not clock.has_waiters()
    clock.step(1)
    assert limiter.try_accept()


def test_token_bucket_without_burst_lets_nobody_through() -> None:
    clock = testing.FakeClock()
    limiter = flowcontrol.TokenBucketRateLimiter(5, 0, clock)
    clock.step(100)
    assert not limiter.try_accept()
    with pytest.raises(ValueError, match="burst 0 admits no call"):
        limiter.wait(golang.background())


@pytest.mark.parametrize(("qps", "burst"), [(0.0, 1), (-1.0, 1), (1.0, -1)])
def test_token_bucket_refuses(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="qps must be positive and burst not negative"):
        flowcontrol.TokenBucketRateLimiter(qps, burst)


def test_wait_that_ends_keeps_nothing_of_the_caller() -> None:
    limiter = flowcontrol.TokenBucketRateLimiter(1, 1, testing.FakeClock())
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    assert frames_kept_after(lambda: limiter.wait(ctx)) == []
