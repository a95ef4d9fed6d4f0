"""A cache of values that are made anew when they have become too old.

Go: pkg/kubelet/util/cache/object_cache.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pkg.apimachinery import clock as clockpkg

T = TypeVar("T")


class ObjectCache(Generic[T]):
    """Values by key, each good for `ttl` seconds; then `updater` makes a new one. Safe from any thread."""

    def __init__(self, updater: Callable[[], T], ttl: float, clock: clockpkg.Clock | None = None) -> None:
        self._updater = updater
        self._ttl = ttl
        self._clock = clock or clockpkg.RealClock()
        # Guards _entries. Not held while updating: two threads may then both update, as in Go.
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[float, T]] = {}

    def get(self, key: str) -> T:
        """The value for key, made by the updater if none is young enough; raises what that raises."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock.monotonic() - entry[0] <= self._ttl:
                return entry[1]
        obj = self._updater()
        self.add(key, obj)
        return obj

    def add(self, key: str, obj: T) -> None:
        """Store a value for key, as if just made."""
        with self._lock:
            self._entries[key] = (self._clock.monotonic(), obj)
