"""Test tickers and timers, with real clocks where waking matters and fake clocks elsewhere."""

from __future__ import annotations

import pytest

from pkg import golang
from pkg.apimachinery.clock import testing
from pkg.golang.channel_test import wait_for_blocked

WAIT = 30.0


def test_real_ticker_wakes_a_select_again_and_again() -> None:
    ticker = golang.Ticker(0.002)
    idle: golang.Channel[int] = golang.Channel()
    for _ in range(3):
        assert golang.select(idle, ticker.channel, timeout=WAIT).took(ticker.channel)
    ticker.stop()
    assert golang.select(idle, ticker.channel, timeout=0.01).case is None


def test_real_after_fires_once() -> None:
    channel = golang.after(0.001)
    assert channel.recv(WAIT)[1]
    assert channel.recv(0.01) == (None, False)


def test_real_reset_reaches_a_thread_that_waits() -> None:
    timer = golang.Timer(3600)
    thread = golang.go(timer.channel.recv, name="waiter")
    wait_for_blocked(timer.channel, receivers=1)
    timer.reset(0.001)
    thread.join(WAIT)
    assert not thread.is_alive()


def test_fake_step_reaches_a_thread_that_waits() -> None:
    clock = testing.FakeClock()
    channel = clock.after(60)
    thread = golang.go(channel.recv, name="waiter")
    wait_for_blocked(channel, receivers=1)
    clock.step(59)
    wait_for_blocked(channel, receivers=1)
    clock.step(1)
    thread.join(WAIT)
    assert not thread.is_alive() and not clock.has_waiters()


def test_ticker_holds_one_tick_and_keeps_its_grid() -> None:
    clock = testing.FakeClock()
    ticker = golang.Ticker(1.0, clock)
    clock.step(3.5)
    assert len(ticker.channel) == 1, "ticks 2 and 3 are dropped"
    assert ticker.channel.recv(0)[1]
    clock.step(0.25)
    assert len(ticker.channel) == 0
    clock.step(0.25)
    assert len(ticker.channel) == 1, "tick 4 is on time"


@pytest.mark.parametrize(
    ("before_stop", "was_active", "tick_left"),
    [
        pytest.param(0.5, True, False, id="stopped in time"),
        pytest.param(1.0, True, False, id="fired and not received counts as active"),
    ],
)
def test_timer_stop(before_stop: float, was_active: bool, tick_left: bool) -> None:
    clock = testing.FakeClock()
    timer = clock.new_timer(1.0)
    clock.step(before_stop)
    assert timer.stop() is was_active
    clock.step(5)
    assert (len(timer.channel) == 1) is tick_left
    assert timer.stop() is False


def test_reset_drops_the_old_tick() -> None:
    clock = testing.FakeClock()
    timer = clock.new_timer(1.0)
    clock.step(1)
    assert timer.reset(2) is True
    assert len(timer.channel) == 0
    clock.step(2)
    assert timer.channel.recv(0) == (clock.now(), True)
    assert timer.reset(1) is False


def test_ticker_reset_changes_the_period() -> None:
    clock = testing.FakeClock()
    ticker = clock.new_ticker(10)
    ticker.reset(1)
    clock.step(1)
    assert len(ticker.channel) == 1
    ticker.stop()
    assert not clock.has_waiters()


@pytest.mark.parametrize("period", [0.0, -1.0])
def test_period_must_be_positive(period: float) -> None:
    with pytest.raises(ValueError, match="ticker period must be positive"):
        golang.Ticker(period)
    ticker = golang.Ticker(1.0)
    with pytest.raises(ValueError, match="ticker period must be positive"):
        ticker.reset(period)


def test_a_timer_without_delay_is_ready_at_once() -> None:
    assert golang.Timer(0).channel.try_recv()[2]
    assert golang.Timer(0, testing.FakeClock()).channel.try_recv()[2]
