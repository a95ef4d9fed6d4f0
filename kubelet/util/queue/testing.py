"""Provide a work queue without delays."""

from __future__ import annotations

import threading

from pkg.apimachinery import types


class FakeWorkQueue:
    """Return all items at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items: list[tuple[types.UID, float]] = []

    def enqueue(self, item: types.UID, delay: float) -> None:
        with self._lock:
            self.items.append((item, delay))

    def get_work(self) -> list[types.UID]:
        with self._lock:
            work = [item for item, _ in self.items]
            self.items.clear()
            return work
