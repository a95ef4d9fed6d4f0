"""Provide one lock for each key, which exists only while a thread holds it or waits for it.

Go: k8s.io/utils/keymutex/hashed.go, where keys share a fixed number of locks, and wait for each other
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class KeyMutex:
    """Lock keys. All methods are thread-safe. Keys may come from pods, so unused keys are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _entries, and the number of users of each entry.
        self._entries: dict[str, _Entry] = {}

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Wait until no other thread holds the key, and hold the key for the duration of the block."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._lock:
                entry.users -= 1
                if entry.users == 0:
                    del self._entries[key]

    def held(self) -> set[str]:
        """Return the keys that a thread holds or waits for."""
        with self._lock:
            return set(self._entries)
