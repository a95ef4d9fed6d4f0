"""Limit the rate of calls.

Go: k8s.io/client-go/util/flowcontrol/throttle.go
"""

from __future__ import annotations

import threading
from typing import Protocol

from pkg import golang
from pkg.apimachinery import clock as clock_


class RateLimiter(Protocol):
    def try_accept(self) -> bool:
        """Take a token, and report whether one was available."""
        ...

    def wait(self, ctx: golang.Context) -> None:
        """Wait for a token and take it; raise ctx.err() if ctx is done first."""
        ...


class TokenBucketRateLimiter:
    """Allow `qps` calls per second on average and `burst` at once, and none if burst is 0.

    All methods are thread-safe.
    """

    def __init__(self, qps: float, burst: int, clock: clock_.Clock | None = None) -> None:
        if qps <= 0 or burst < 0:
            raise ValueError(f"rate limiter: qps must be positive and burst not negative, got {qps} and {burst}")
        self._qps = qps
        self._burst = burst
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # The lock guards _tokens and _updated.
        self._tokens = float(burst)  # A negative number means that waiting callers have reserved tokens in advance.
        self._updated = self._clock.monotonic()

    def try_accept(self) -> bool:
        with self._lock:
            self._refill_locked()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def wait(self, ctx: golang.Context) -> None:
        if self._burst == 0:
            raise ValueError("rate limiter: burst 0 admits no call")
        with self._lock:
            self._refill_locked()
            self._tokens -= 1
            delay = max(-self._tokens / self._qps, 0.0)
        timer = golang.Timer(delay, self._clock)
        if delay > 0:
            golang.select(ctx.done(), timer.channel)
        timer.stop()
        if ctx.err() is not None:
            with self._lock:
                self._tokens += 1
            ctx.raise_if_done()

    def _refill_locked(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._updated) * self._qps, float(self._burst))
        self._updated = now
