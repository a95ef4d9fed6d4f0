"""Compute growing delays between attempts.

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
    """Hold the parameters and the state of a backoff; `step` changes duration and steps."""

    duration: float
    """`duration` is the next delay in seconds."""
    factor: float = 0.0
    """Each step multiplies the duration by this factor; 0 leaves it unchanged."""
    jitter: float = 0.0
    """Each delay is extended by a random share of up to this fraction of the duration.

    The extensions do not accumulate.
    """
    steps: int = 0
    """`steps` is the number of further steps that change the duration."""
    cap: float = 0.0
    """`cap` is the maximum duration. Reaching it ends the steps; 0 means no maximum."""

    def step(self) -> float:
        """Return the delay for now, in seconds, and prepare the next step."""
        duration = self.duration
        if self.steps > 0:
            self.steps -= 1
            self._grow()
        return wait.jitter(duration, self.jitter) if self.jitter > 0 else duration

    def delay_with_reset(self, clock: _Clock, reset_interval: float) -> Callable[[], float]:
        """Return a function that returns the delays in seconds, restarting every `reset_interval` seconds.

        Only one thread may call the function. This backoff is not changed.
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
