"""Provide tickers and timers as channels that become ready by themselves, without threads.

Go: time.NewTicker, time.NewTimer, time.After
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

from pkg.golang.channel import Channel, lock


class TimerSource(Protocol):
    """Define what a Ticker or a Timer needs from a clock."""

    def new_timer_channel(self, delay: float, period: float | None) -> TimerChannel: ...


class TimerChannel(Channel[datetime]):
    """Deliver the time once `delay` seconds have passed, then every `period` seconds if a period is given.

    The channel holds at most one tick and drops further ones. Ticks stay at multiples of the period after the start
    time. The fake clock overrides the methods that read the time, and fires the ticks itself.
    """

    __slots__ = ("_next", "_period")

    def __init__(self, delay: float, period: float | None = None) -> None:
        super().__init__(1)
        self._period: float | None = None
        self._next: float | None = None
        self.start(delay, period)

    def start(self, delay: float, period: float | None) -> bool:
        """Start or restart, and drop a tick that was not yet received.

        Report whether such a tick or a future one was pending.
        """
        with lock:
            active = self._drop_locked()
            self._period = period
            self._arm_locked(self.monotonic() + delay)
            return active

    def start_at(self, at: float) -> None:
        """Start or restart for one tick at the given time, and drop a tick that was not yet received."""
        with lock:
            self._drop_locked()
            self._period = None
            self._arm_locked(at)

    def stop(self) -> bool:
        """Stop ticking, and drop a tick that was not yet received.

        Report whether such a tick or a future one was pending.
        """
        with lock:
            active = self._drop_locked()
            self._arm_locked(None)
            return active

    def monotonic(self) -> float:
        """Return the time that delay and period refer to."""
        return monotonic()

    def now(self) -> datetime:
        """Return the time that a tick carries."""
        return datetime.now(UTC)

    def _drop_locked(self) -> bool:
        active = self._next is not None or bool(self._buffer)
        self._buffer.clear()
        return active

    def _arm_locked(self, at: float | None) -> None:
        self._next = at
        self._set_deadline_locked(at)

    def _expire_locked(self) -> None:
        """Tick once, and set the deadline to the next tick that lies in the future."""
        assert self._next is not None
        if self._send_ready_locked():
            self._put_locked(self.now())
        if self._period is None:
            self._arm_locked(None)
        else:
            missed = max(self.monotonic() - self._next, 0.0) // self._period
            self._arm_locked(self._next + (missed + 1) * self._period)


class Ticker:
    """Tick on `.channel` every `period` seconds. A Ticker can be garbage-collected without being stopped."""

    def __init__(self, period: float, clock: TimerSource | None = None) -> None:
        _check_period(period)
        self._timer = clock.new_timer_channel(period, period) if clock else TimerChannel(period, period)

    @property
    def channel(self) -> Channel[datetime]:
        return self._timer

    def stop(self) -> None:
        """Stop ticking. The channel stays open."""
        self._timer.stop()

    def reset(self, period: float) -> None:
        """Restart with another period; the first tick comes one period from now."""
        _check_period(period)
        self._timer.start(period, period)


class Timer:
    """Tick on `.channel` once, `delay` seconds after the start."""

    def __init__(self, delay: float, clock: TimerSource | None = None) -> None:
        self._timer = clock.new_timer_channel(delay, None) if clock else TimerChannel(delay)

    @property
    def channel(self) -> Channel[datetime]:
        return self._timer

    def stop(self) -> bool:
        """Stop the timer. Report whether its tick was still in the future or not yet received."""
        return self._timer.stop()

    def reset(self, delay: float) -> bool:
        """Restart the timer. Return the same as stop."""
        return self._timer.start(delay, None)


def after(seconds: float, clock: TimerSource | None = None) -> Channel[datetime]:
    """Return a channel that delivers the time once, `seconds` from now."""
    return Timer(seconds, clock).channel


def _check_period(period: float) -> None:
    if period <= 0:
        raise ValueError(f"ticker period must be positive, got {period}")
