"""Provide a clock that does not advance until the test moves it.

Go: k8s.io/utils/clock/testing
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from pkg import golang
from pkg.golang import channel

_DEFAULT_START = datetime(2020, 1, 1, tzinfo=UTC)


class FakeClock:
    """Implement clock.Clock; moving it fires the timers that are due.

    All methods are thread-safe.
    """

    def __init__(self, start: datetime = _DEFAULT_START) -> None:
        # The lock guards _now and _elapsed. It is taken while the channels' lock is held.
        self._mutex = threading.Lock()
        self._now = start
        self._start = start
        self._elapsed = 0.0
        self._armed: dict[_FakeTimerChannel, None] = {}  # The channels' lock guards this field.
        self._waiters = 0  # This field is the size of _armed; _waiters_changed guards it.
        self._waiters_changed = threading.Condition()  # This lock is taken while the channels' lock is held.
        self._skipped: list[float] | None = None

    def now(self) -> datetime:
        with self._mutex:
            return self._now

    def monotonic(self) -> float:
        with self._mutex:
            return self._elapsed

    def steady(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def since(self, then: datetime) -> float:
        return (self.now() - then).total_seconds()

    def after(self, seconds: float) -> golang.Channel[datetime]:
        return self.new_timer(seconds).channel

    def new_timer(self, seconds: float) -> golang.Timer:
        return golang.Timer(seconds, self)

    def new_ticker(self, period: float) -> golang.Ticker:
        return golang.Ticker(period, self)

    def new_timer_channel(self, delay: float, period: float | None) -> golang.TimerChannel:
        if self._skipped is not None and period is None:
            self._skipped.append(delay)
            delay = 0
        return _FakeTimerChannel(self, delay, period)

    def skip_pauses(self) -> list[float]:
        """Make timers fire at once from now on.

        Return a list to which the duration of each such timer, in seconds, is added.
        """
        self._skipped = []
        return self._skipped

    def sleep(self, seconds: float) -> None:
        """Move the clock, as Go's fake does, because nothing else would move it while the caller sleeps."""
        self.step(seconds)

    def step(self, seconds: float) -> None:
        """Move the clock forward, and fire the timers that are due."""
        with self._mutex:
            self._now += timedelta(seconds=seconds)
            self._elapsed += seconds
        self._fire_due()

    def set_time(self, now: datetime) -> None:
        """Set the time of day; if it moves forward, the monotonic time moves too."""
        with self._mutex:
            self._elapsed += max((now - self._now).total_seconds(), 0.0)
            self._now = now
        self._fire_due()

    def shift(self, seconds: float) -> None:
        """Set the time of day forward or back, as NTP or an administrator would, without moving the monotonic time."""
        with self._mutex:
            self._now += timedelta(seconds=seconds)

    def has_waiters(self) -> bool:
        """Report whether any timer or ticker is running."""
        return self.waiters() > 0

    def waiters(self) -> int:
        """Return the number of running timers and tickers."""
        with self._waiters_changed:
            return self._waiters

    def wait_for_waiters(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait until at least `count` timers and tickers are running.

        Raise AssertionError after `timeout` seconds.

        Go: none; its tests poll HasWaiters.
        """
        with self._waiters_changed:
            found = self._waiters_changed.wait_for(lambda: self._waiters >= count, timeout)
            assert found, f"{self._waiters} timers are running after {timeout:g} s, not {count}"

    def _note_waiters_locked(self) -> None:
        with self._waiters_changed:
            self._waiters = len(self._armed)
            self._waiters_changed.notify_all()

    def _fire_due(self) -> None:
        with channel.lock:
            for timer in list(self._armed):
                timer.fire_if_due_locked()


class _FakeTimerChannel(golang.TimerChannel):
    """Expire when the fake clock moves, and never in real time."""

    __slots__ = ("_clock",)

    def __init__(self, clock: FakeClock, delay: float, period: float | None) -> None:
        self._clock = clock
        super().__init__(delay, period)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        return self._clock.now()

    def fire_if_due_locked(self) -> None:
        if self._next is not None and self._next <= self.monotonic():
            self._expire_locked()

    def _arm_locked(self, at: float | None) -> None:
        self._next = at
        if at is None:
            self._clock._armed.pop(self, None)
            self._clock._note_waiters_locked()
        elif self._period is None and at <= self.monotonic():
            self._expire_locked()
        else:
            self._clock._armed[self] = None
            self._clock._note_waiters_locked()
