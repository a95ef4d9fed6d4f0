"""Provide a health check whose result the test sets."""

from __future__ import annotations

import queue


class FakeHealthCheck:
    """Fail while `err` is set. Each failure adds an entry to `failed`."""

    def __init__(self) -> None:
        self.err: Exception | None = None
        self.failed: queue.Queue[None] = queue.Queue()

    def __call__(self) -> None:
        if self.err is not None:
            self.failed.put(None)
            raise self.err
