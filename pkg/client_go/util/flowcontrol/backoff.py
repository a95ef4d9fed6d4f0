"""Back off after failures, with a delay for each item that doubles each time.

Go: k8s.io/client-go/util/flowcontrol/backoff.go
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pkg.apimachinery import clock as clock_


@dataclass(slots=True)
class _Entry:
    backoff: float
    last_update: datetime


class Backoff:
    """Track the backoff of each item, in seconds.

    All methods are thread-safe. An item whose last failure is more than twice `max_duration` ago starts again from
    `initial`. `has_expired_func(event_time, last_update, max_duration)` can replace this rule.
    """

    def __init__(
        self,
        initial: float,
        max_duration: float,
        clock: clock_.Clock | None = None,
        max_jitter_factor: float = 0.0,
    ) -> None:
        self.clock = clock or clock_.RealClock()
        self.default_duration = initial
        self.max_duration = max_duration
        self.max_jitter_factor = max_jitter_factor
        self.has_expired_func: Callable[[datetime, datetime, float], bool] | None = None
        self._lock = threading.Lock()  # The lock guards _per_item.
        self._per_item: dict[str, _Entry] = {}

    def get(self, id: str) -> float:
        """Return the current delay of the item, or 0 if it has none."""
        with self._lock:
            entry = self._per_item.get(id)
            return entry.backoff if entry else 0.0

    def until(self, id: str) -> datetime | None:
        """Return when the delay after the item's last failure ends, or None if it has none."""
        with self._lock:
            entry = self._per_item.get(id)
            return entry.last_update + timedelta(seconds=entry.backoff) if entry else None

    def next(self, id: str, event_time: datetime) -> None:
        """Record another failure of the item, and double its delay up to the maximum."""
        with self._lock:
            entry = self._per_item.get(id)
            if entry is None or self._has_expired(event_time, entry.last_update):
                pause = self.default_duration + self._jitter(self.default_duration)
            else:
                pause = min(entry.backoff * 2 + self._jitter(entry.backoff), self.max_duration)
            self._per_item[id] = _Entry(pause, self.clock.now())

    def reset(self, id: str) -> None:
        """Forget the item."""
        with self._lock:
            self._per_item.pop(id, None)

    delete_entry = reset

    def is_in_back_off_since(self, id: str, event_time: datetime) -> bool:
        """Report whether less time than the item's delay has passed since `event_time`."""
        with self._lock:
            entry = self._per_item.get(id)
            if entry is None or self._has_expired(event_time, entry.last_update):
                return False
            # DIVERGES (fault of Go): an event that lies further in the future than the delay is no reason to wait.
            # Go: k8s.io/client-go/util/flowcontrol/backoff.go, (*Backoff).IsInBackOffSince: the Go kubelet waits until
            # the event has passed, however far in the future it lies.
            # Why: if the clock is set back by a day, a container that has just exited would not be restarted for a day.
            # Test: flowcontrol_test.py:test_a_back_off_ends_when_the_clock_is_set_back
            return abs(self.clock.since(event_time)) < entry.backoff  # time of day: the runtime reports the time.

    def is_in_back_off_since_update(self, id: str, event_time: datetime) -> bool:
        """Report whether `event_time` is less than the item's delay after its last failure."""
        with self._lock:
            entry = self._per_item.get(id)
            if entry is None or self._has_expired(event_time, entry.last_update):
                return False
            # As in is_in_back_off_since, a failure in the future is no reason to wait. In Go these times include a
            # monotonic reading.
            return abs((event_time - entry.last_update).total_seconds()) < entry.backoff

    def gc(self) -> None:
        """Forget items whose last failure is long past; call this periodically."""
        with self._lock:
            now = self.clock.now()
            for id, entry in list(self._per_item.items()):
                if self._has_expired(now, entry.last_update):
                    del self._per_item[id]

    def _jitter(self, pause: float) -> float:
        return random.random() * self.max_jitter_factor * pause if self.max_jitter_factor > 0 else 0.0

    def _has_expired(self, event_time: datetime, last_update: datetime) -> bool:
        if self.has_expired_func is not None:
            return self.has_expired_func(event_time, last_update, self.max_duration)
        return (event_time - last_update).total_seconds() > self.max_duration * 2
