"""Tickers and timers as channels that become ready by themselves; no threads.

Go: time.NewTicker, time.NewTimer, time.After
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

from pkg.golang.channel import Channel, lock


class TimerSource(Protocol):
    """What a Ticker or Timer needs of a clock."""

    def new_timer_channel(self, delay: float, period: float | None) -> TimerChannel: ...


class TimerChannel(Channel[datetime]):
    """Receives the time once `delay` seconds have passed, then every `period` seconds if that is given.

    It holds at most one tick and drops the others, and ticks stay on the grid of the start time.
    Overridden by the fake clock, which says what time it is and when to look.
    """

    __slots__ = ("_next", "_period")

    def __init__(self, delay: float, period: float | None = None) -> None:
        super().__init__(1)
        self._period: float | None = None
        self._next: float | None = None
        self.start(delay, period)

    def start(self, delay: float, period: float | None) -> bool:
        """(Re)start; a tick not yet received is dropped. Returns whether one was still to come."""
        with lock:
            active = self._drop_locked()
            self._period = period
            self._arm_locked(self.monotonic() + delay)
            return active

    def start_at(self, at: float) -> None:
        """(Re)start for one tick at that time; a tick not yet received is dropped."""
        with lock:
            self._drop_locked()
            self._period = None
            self._arm_locked(at)

    def stop(self) -> bool:
        """No more ticks, not even one that waits to be received. Returns whether one was still to come."""
        with lock:
            active = self._drop_locked()
            self._arm_locked(None)
            return active

    def monotonic(self) -> float:
        """The time that delay and period count in."""
        return monotonic()

    def now(self) -> datetime:
        """The time that is sent."""
        return datetime.now(UTC)

    def _drop_locked(self) -> bool:
        active = self._next is not None or bool(self._buffer)
        self._buffer.clear()
        return active

    def _arm_locked(self, at: float | None) -> None:
        self._next = at
        self._set_deadline_locked(at)

    def _expire_locked(self) -> None:
        """Tick once, and move on to the first time on the grid that is not past."""
        assert self._next is not None
        if self._send_ready_locked():
            self._put_locked(self.now())
        if self._period is None:
            self._arm_locked(None)
        else:
            missed = max(self.monotonic() - self._next, 0.0) // self._period
            self._arm_locked(self._next + (missed + 1) * self._period)


class Ticker:
    """Ticks on `.channel` every `period` seconds; needs no stop to be collected."""

    def __init__(self, period: float, clock: TimerSource | None = None) -> None:
        _check_period(period)
        self._timer = clock.new_timer_channel(period, period) if clock else TimerChannel(period, period)

    @property
    def channel(self) -> Channel[datetime]:
        return self._timer

    def stop(self) -> None:
        """No more ticks; the channel is not closed."""
        self._timer.stop()

    def reset(self, period: float) -> None:
        """Start again with another period, the first tick one period from now."""
        _check_period(period)
        self._timer.start(period, period)


class Timer:
    """Ticks on `.channel` once, `delay` seconds after the start."""

    def __init__(self, delay: float, clock: TimerSource | None = None) -> None:
        self._timer = clock.new_timer_channel(delay, None) if clock else TimerChannel(delay)

    @property
    def channel(self) -> Channel[datetime]:
        return self._timer

    def stop(self) -> bool:
        """Cancel; returns whether the tick was still to come or not yet received."""
        return self._timer.stop()

    def reset(self, delay: float) -> bool:
        """Start again; returns as stop does."""
        return self._timer.start(delay, None)


def after(seconds: float, clock: TimerSource | None = None) -> Channel[datetime]:
    """A channel that receives the time once, `seconds` from now."""
    return Timer(seconds, clock).channel


def _check_period(period: float) -> None:
    if period <= 0:
        raise ValueError(f"ticker period must be positive, got {period}")
