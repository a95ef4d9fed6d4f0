"""Provide a rate limiter for tests."""

from __future__ import annotations

from pkg import golang


class FakeRateLimiter:
    """Count the calls of wait, and limit nothing."""

    def __init__(self) -> None:
        self.waits = 0

    def try_accept(self) -> bool:
        return True

    def wait(self, ctx: golang.Context) -> None:
        self.waits += 1
