"""A rate limiter that counts."""

from __future__ import annotations

from pkg import golang


class FakeRateLimiter:
    """Counts who waits."""

    def __init__(self) -> None:
        self.waits = 0

    def try_accept(self) -> bool:
        return True

    def wait(self, ctx: golang.Context) -> None:
        self.waits += 1
