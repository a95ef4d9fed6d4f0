"""A check of health whose result the test sets."""

from __future__ import annotations

import queue


class FakeHealthCheck:
    """Fails while it has something to raise; `failed` has an entry for each time."""

    def __init__(self) -> None:
        self.err: Exception | None = None
        self.failed: queue.Queue[None] = queue.Queue()

    def __call__(self) -> None:
        if self.err is not None:
            self.failed.put(None)
            raise self.err
