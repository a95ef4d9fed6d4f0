"""Pass time as an argument: code that waits or measures takes a Clock, which tests replace with a fake one.

Go: k8s.io/utils/clock
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pkg import golang


class Clock(Protocol):
    """Define a clock.

    Use `now` for times that users and the API see, and `monotonic` for ages and deadlines. Use `steady` to compare
    times at which this process observed something; Go's times carry a monotonic reading for this purpose.
    """

    def now(self) -> datetime:
        """Return the time of day in UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since some fixed time; the value never decreases."""
        ...

    def steady(self) -> datetime:
        """Return the time that `now` would show if the system clock had not been set since the process started."""
        ...

    def since(self, then: datetime) -> float:
        """Return the seconds from `then` to now."""
        ...

    def after(self, seconds: float) -> golang.Channel[datetime]:
        """Return a channel that receives the time once, `seconds` from now."""
        ...

    def new_timer(self, seconds: float) -> golang.Timer: ...

    def new_ticker(self, period: float) -> golang.Ticker: ...

    def new_timer_channel(self, delay: float, period: float | None) -> golang.TimerChannel:
        """Return the channel on which a timer or ticker of this clock is based."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block; prefer `golang.Context.wait`, which can be interrupted."""
        ...


def to_steady(clock: Clock, time_of_day: datetime) -> datetime:
    """Convert a recent time of day from another process on this machine to the scale of `steady`."""
    return clock.steady() - (clock.now() - time_of_day)


def from_steady(clock: Clock, reading: datetime) -> datetime:
    """Convert a reading of `steady` to the time of day by the current system clock, to show or store it."""
    return clock.now() - (clock.steady() - reading)


# `_STEADY_ZERO` is the time of day at which the monotonic clock was 0, according to the system clock at the process's
# start.
_STEADY_ZERO = datetime.now(UTC) - timedelta(seconds=time.monotonic())


class RealClock:
    """Read the system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def steady(self) -> datetime:
        return _STEADY_ZERO + timedelta(seconds=self.monotonic())

    def since(self, then: datetime) -> float:
        return (self.now() - then).total_seconds()

    def after(self, seconds: float) -> golang.Channel[datetime]:
        return golang.after(seconds)

    def new_timer(self, seconds: float) -> golang.Timer:
        return golang.Timer(seconds)

    def new_ticker(self, period: float) -> golang.Ticker:
        return golang.Ticker(period)

    def new_timer_channel(self, delay: float, period: float | None) -> golang.TimerChannel:
        return golang.TimerChannel(delay, period)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))
