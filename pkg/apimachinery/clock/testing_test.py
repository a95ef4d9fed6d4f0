"""Test the fake clock, and that the real one has the same interface."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from pkg import golang
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.clock import testing

START = datetime(2024, 1, 1, tzinfo=UTC)


def test_fake_time_stands_still_until_moved() -> None:
    clock: clock_.Clock = testing.FakeClock(START)
    assert clock.now() == clock.now() == START
    clock.sleep(2.5)
    assert clock.now() == START + timedelta(seconds=2.5)
    assert clock.monotonic() == 2.5 and clock.since(START) == 2.5


def test_set_time_moves_forward_and_back() -> None:
    clock = testing.FakeClock(START)
    due = clock.after(60)
    clock.set_time(START - timedelta(hours=1))
    assert clock.monotonic() == 0 and len(due) == 0
    clock.set_time(START)
    assert due.recv(0) == (START, True)


def test_steady_time_follows_no_setting_back() -> None:
    clock = testing.FakeClock(START)
    clock.step(10)
    clock.set_time(START - timedelta(hours=1))
    clock.step(5)
    assert clock.steady() == START + timedelta(seconds=15)
    five_ago = clock.now() - timedelta(seconds=5)
    assert clock_.to_steady(clock, five_ago) == START + timedelta(seconds=10)


def test_waiters() -> None:
    clock = testing.FakeClock(START)
    assert not clock.has_waiters()
    clock.after(1)
    ticker = clock.new_ticker(1)
    assert clock.waiters() == 2
    clock.step(1)
    assert clock.waiters() == 1, "a ticker goes on, a timer that fired does not"
    ticker.stop()
    assert not clock.has_waiters()


def test_waiters_are_waited_for() -> None:
    clock = testing.FakeClock(START)
    threads = [golang.go(lambda: clock.after(1).recv(), name=f"waiter-{i}") for i in range(2)]
    clock.wait_for_waiters(2)
    clock.step(1)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with pytest.raises(AssertionError, match=r"0 timers are running after 0.01 s, not 1"):
        clock.wait_for_waiters(timeout=0.01)


def test_real_clock() -> None:
    clock: clock_.Clock = clock_.RealClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.monotonic() - time.monotonic()) < 60
    assert clock.since(clock.now() - timedelta(seconds=5)) >= 5
    assert clock.after(0).recv(30)[1] and clock.new_timer(0).channel.recv(30)[1]
    assert clock.new_ticker(0.001).channel.recv(30)[1]
