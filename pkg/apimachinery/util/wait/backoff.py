"""Growing pauses between attempts.

Go: k8s.io/apimachinery/pkg/util/wait/backoff.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from pkg.apimachinery.util.wait import wait


class _Clock(Protocol):
    def monotonic(self) -> float: ...


@dataclass(slots=True)
class Backoff:
    """Parameters of a growing pause, and its state: `step` changes duration and steps."""

    duration: float
    """Seconds of the next pause."""
    factor: float = 0.0
    """What each step multiplies the duration by; 0 leaves it."""
    jitter: float = 0.0
    """The pause is longer by a random share of up to this of the duration; not accumulated."""
    steps: int = 0
    """How many more times the duration changes."""
    cap: float = 0.0
    """A limit on the duration, reaching which ends the steps; 0 is none."""

    def step(self) -> float:
        """The seconds to wait now; prepares the next step."""
        duration = self.duration
        if self.steps > 0:
            self.steps -= 1
            self._grow()
        return wait.jitter(duration, self.jitter) if self.jitter > 0 else duration

    def delay_with_reset(self, clock: _Clock, reset_interval: float) -> Callable[[], float]:
        """A function that gives the seconds of each pause, from the start again every `reset_interval` seconds.

        For one thread. This backoff stays as it is.
        """
        current, last_start = replace(self), clock.monotonic()

        def delay() -> float:
            nonlocal current, last_start
            if clock.monotonic() - last_start > reset_interval:
                current, last_start = replace(self), clock.monotonic()
            return current.step()

        return delay

    def _grow(self) -> None:
        if not self.factor:
            return
        self.duration *= self.factor
        if 0 < self.cap < self.duration:
            self.duration = self.cap
            self.steps = 0
