"""Cache values, and create them again when they are too old.

Go: pkg/kubelet/util/cache/object_cache.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pkg.apimachinery import clock as clockpkg

T = TypeVar("T")


class ObjectCache(Generic[T]):
    """Cache values by key for `ttl` seconds; `updater` creates a new value afterwards.

    All methods are thread-safe.
    """

    def __init__(self, updater: Callable[[], T], ttl: float, clock: clockpkg.Clock | None = None) -> None:
        self._updater = updater
        self._ttl = ttl
        self._clock = clock or clockpkg.RealClock()
        # The lock guards _entries. An update runs without the lock, so two threads may update at once, as in Go.
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[float, T]] = {}

    def get(self, key: str) -> T:
        """Return the value for the key; `updater` creates a value that is missing or too old.

        Raise the updater's error.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock.monotonic() - entry[0] <= self._ttl:
                return entry[1]
        obj = self._updater()
        self.add(key, obj)
        return obj

    def add(self, key: str, obj: T) -> None:
        """Store a new value for the key."""
        with self._lock:
            self._entries[key] = (self._clock.monotonic(), obj)
