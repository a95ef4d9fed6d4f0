"""A queue of pods to be synced later that does not wait."""

from __future__ import annotations

import threading


class FakeWorkQueue:
    """A work queue that is always due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items: list[tuple[str, float]] = []

    def enqueue(self, item: str, delay: float) -> None:
        with self._lock:
            self.items.append((item, delay))

    def get_work(self) -> list[str]:
        with self._lock:
            work = [item for item, _ in self.items]
            self.items.clear()
            return work
