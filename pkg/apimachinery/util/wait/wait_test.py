"""Test loops, polls and backoffs on a fake clock."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from pkg import golang
from pkg.apimachinery.clock import testing
from pkg.apimachinery.util import wait
from pkg.golang.testing import frames_kept_after

WAIT = 30.0


class Stepper:
    """Run a loop on its own clock, and step the clock whenever the loop waits."""

    def __init__(self) -> None:
        self.clock = testing.FakeClock()
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.calls: list[float] = []
        self.called: golang.Channel[None] = golang.Channel(100)

    def call(self) -> None:
        self.calls.append(self.clock.monotonic())
        self.called.send(None)

    def run(self, fn: Callable[[], object]) -> golang.Thread:
        return golang.go(fn, name="loop")

    def await_call(self) -> None:
        assert self.called.recv(WAIT)[1], "the loop did not call"


def test_until_counts_from_the_end_of_the_call() -> None:
    s = Stepper()

    def slow() -> None:
        s.clock.step(3)
        s.call()

    thread = s.run(lambda: wait.until(slow, 10.0, s.ctx, s.clock))
    for _ in range(2):
        s.await_call()
        s.clock.wait_for_waiters()
        s.clock.step(10)
    s.await_call()
    s.cancel()
    thread.join(WAIT)
    assert s.calls == [3, 16, 29]
    assert not s.clock.has_waiters()


def test_not_sliding_counts_from_the_start_of_the_call() -> None:
    s = Stepper()

    def slow() -> None:
        s.clock.step(3)
        s.call()

    thread = s.run(lambda: wait.jitter_until(slow, 10.0, 0.0, False, s.ctx, s.clock))
    s.await_call()
    s.clock.step(7)
    s.await_call()
    s.cancel()
    thread.join(WAIT)
    assert s.calls == [3, 13]


def test_until_does_not_start_when_done() -> None:
    s = Stepper()
    s.cancel()
    wait.until(s.call, 1.0, s.ctx, s.clock)
    assert s.calls == []


@pytest.mark.parametrize("err", [ValueError("bad"), golang.Canceled()], ids=["a crash", "another's cancel"])
def test_until_survives_a_crash_and_logs_it(log: io.StringIO, err: Exception) -> None:
    s = Stepper()

    def crash() -> None:
        s.calls.append(0)
        if len(s.calls) == 2:
            s.cancel()
            return
        raise err

    wait.until(crash, 0.0, s.ctx)
    assert len(s.calls) == 2
    assert f'"Observed a panic" err="{err}"' in log.getvalue() and "in crash" in log.getvalue()


def test_until_says_nothing_of_its_own_cancel(log: io.StringIO) -> None:
    s = Stepper()

    def cancelled() -> None:
        s.cancel()
        raise golang.Canceled

    wait.until(cancelled, 0.0, s.ctx)
    assert log.getvalue() == ""


@pytest.mark.parametrize(("factor", "most"), [(0.5, 15.0), (0.0, 20.0), (-1.0, 20.0)])
def test_jitter(factor: float, most: float) -> None:
    values = [wait.jitter(10.0, factor) for _ in range(200)]
    assert min(values) >= 10.0 and max(values) <= most and len(set(values)) > 1


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        pytest.param(wait.Backoff(1.0), [1, 1, 1], id="constant"),
        pytest.param(wait.Backoff(1.0, factor=2, steps=2), [1, 2, 4, 4], id="grows for its steps"),
        pytest.param(wait.Backoff(1.0, factor=10, steps=9, cap=50), [1, 10, 50, 50], id="up to the cap"),
        pytest.param(wait.Backoff(1.0, steps=2), [1, 1, 1], id="no factor"),
    ],
)
def test_backoff_step(backoff: wait.Backoff, expected: list[float]) -> None:
    assert [backoff.step() for _ in expected] == expected


def test_backoff_reaching_the_cap_ends_the_steps() -> None:
    backoff = wait.Backoff(1.0, factor=10, steps=9, cap=5)
    backoff.step()
    assert (backoff.duration, backoff.steps) == (5, 0)


def test_backoff_jitter_does_not_accumulate() -> None:
    backoff = wait.Backoff(1.0, factor=2, jitter=0.5, steps=3)
    for base in (1, 2, 4):
        assert base <= backoff.step() <= base * 1.5


def test_delay_with_reset() -> None:
    clock = testing.FakeClock()
    backoff = wait.Backoff(1.0, factor=2, steps=5, cap=4)
    delay = backoff.delay_with_reset(clock, 120.0)
    assert [delay() for _ in range(5)] == [1, 2, 4, 4, 4]
    clock.step(120)
    assert delay() == 4
    clock.step(0.1)
    assert [delay(), delay()] == [1, 2]
    assert backoff.duration == 1.0


@pytest.mark.parametrize(("immediate", "expected"), [(True, [0, 5]), (False, [5, 10])])
def test_poll_until_context_cancel(immediate: bool, expected: list[float]) -> None:
    s = Stepper()

    def second_time() -> bool:
        s.call()
        return len(s.calls) == 2

    thread = s.run(lambda: wait.poll_until_context_cancel(s.ctx, 5.0, immediate, second_time, s.clock))
    if immediate:
        s.await_call()
    s.clock.wait_for_waiters()
    for _ in range(1 if immediate else 2):
        s.clock.step(5)
        s.await_call()
    thread.join(WAIT)
    assert s.calls == expected
    assert not s.clock.has_waiters()


def test_poll_gives_up() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    with pytest.raises(golang.DeadlineExceeded):
        wait.poll_until_context_timeout(ctx, 3600, 0.001, True, lambda: False)
    cancel()
    with pytest.raises(golang.Canceled):
        wait.poll_until_context_cancel(ctx, 3600, True, lambda: False)


def test_poll_raises_what_the_condition_raises() -> None:
    def crash() -> bool:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        wait.poll_until_context_cancel(golang.background(), 1.0, True, crash)


def test_pause_that_ends_with_the_context_leaves_nothing_for_the_garbage_collector() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    assert frames_kept_after(lambda: wait.pause(ctx, 60)) == []
    with pytest.raises(golang.Canceled):
        wait.pause(ctx, 60)
