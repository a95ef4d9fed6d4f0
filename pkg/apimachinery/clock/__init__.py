"""Time as an argument: code that waits or measures takes a Clock, and its tests take the fake one.

Go: k8s.io/utils/clock
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pkg import golang


class Clock(Protocol):
    """`now` is for what people and the API see, `monotonic` for ages and deadlines.

    `steady` is for comparing what this process saw when: Go's times carry a monotonic reading for that.
    """

    def now(self) -> datetime:
        """The time of day, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed time; never goes back."""
        ...

    def steady(self) -> datetime:
        """What `now` would be had nobody set the clock since the process began."""
        ...

    def since(self, then: datetime) -> float:
        """Seconds from `then` to now."""
        ...

    def after(self, seconds: float) -> golang.Channel[datetime]:
        """A channel that receives the time once, `seconds` from now."""
        ...

    def new_timer(self, seconds: float) -> golang.Timer: ...

    def new_ticker(self, period: float) -> golang.Ticker: ...

    def new_timer_channel(self, delay: float, period: float | None) -> golang.TimerChannel:
        """What timers and tickers of this clock are made of."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block; prefer `golang.Context.wait`, which can be interrupted."""
        ...


def to_steady(clock: Clock, time_of_day: datetime) -> datetime:
    """A time that another process on this machine took lately, as `steady` would have given it then."""
    return clock.steady() - (clock.now() - time_of_day)


def from_steady(clock: Clock, reading: datetime) -> datetime:
    """The time of day, as it is set now, at which `steady` gave this reading; for showing and for keeping it."""
    return clock.now() - (clock.steady() - reading)


# When the monotonic clock showed 0, as it seemed when the process began.
_STEADY_ZERO = datetime.now(UTC) - timedelta(seconds=time.monotonic())


class RealClock:
    """The system's clock."""

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
