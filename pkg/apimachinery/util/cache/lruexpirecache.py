"""Cache a limited number of entries, each for a limited time.

Go: k8s.io/apimachinery/pkg/util/cache/lruexpirecache.go
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from pkg.apimachinery import clock as clocklib

T = TypeVar("T")


class _Clock(Protocol):
    def monotonic(self) -> float: ...


class LRUExpireCache(Generic[T]):
    """Keep the `max_size` most recently used entries.

    All methods are thread-safe.
    """

    def __init__(self, max_size: int, clock: _Clock | None = None) -> None:
        self._max_size = max_size
        self._clock = clock or clocklib.RealClock()
        self._lock = threading.Lock()  # The lock guards _entries.
        self._entries: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def add(self, key: Hashable, value: T, ttl: float) -> None:
        """Keep the value for `ttl` seconds, in place of an earlier one."""
        with self._lock:
            self._entries[key] = (value, self._clock.monotonic() + ttl)
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_size:
                self._entries.popitem(last=False)

    def get(self, key: Hashable) -> T | None:
        """Return the value, or None if there is none or it has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            value, expires = entry
            if self._clock.monotonic() > expires:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return value

    def __len__(self) -> int:
        return len(self._entries)
