"""A range of numbers with a bit for each that is taken.

Go: pkg/registry/core/service/allocator/bitmap.go
"""

from __future__ import annotations

import itertools
import random
import threading


class AllocationBitmap:
    """Which of the numbers from 0 to below `maximum` are taken. Thread-safe."""

    def __init__(self, maximum: int) -> None:
        self._max = maximum
        self._lock = threading.Lock()
        # Guarded by the lock: a set bit is a taken number, and how many of them there are.
        self._allocated = 0
        self._count = 0

    def allocate(self, offset: int) -> bool:
        """Take this number; False if it is taken already. Raises ValueError for one out of the range."""
        if not 0 <= offset < self._max:
            raise ValueError(f"offset {offset} out of range [0,{self._max}]")
        with self._lock:
            if self._is_set_locked(offset):
                return False
            self._set_locked(offset)
            return True

    def allocate_next(self) -> int | None:
        """Take a free number; None when there is none left.

        The search begins anywhere, so that a number that was just released is not likely to be the next.
        """
        with self._lock:
            if self._count >= self._max:
                return None
            start = random.randrange(self._max)
            around = itertools.chain(range(start, self._max), range(start))
            offset = next(offset for offset in around if not self._is_set_locked(offset))
            self._set_locked(offset)
            return offset

    def release(self, offset: int) -> None:
        """Give a number back; one that is not taken does no harm."""
        with self._lock:
            if self._is_set_locked(offset):
                self._allocated &= ~(1 << offset)
                self._count -= 1

    def has(self, offset: int) -> bool:
        with self._lock:
            return self._is_set_locked(offset)

    def free(self) -> int:
        """How many are left."""
        with self._lock:
            return self._max - self._count

    def _is_set_locked(self, offset: int) -> bool:
        return bool(self._allocated >> offset & 1)

    def _set_locked(self, offset: int) -> None:
        self._allocated |= 1 << offset
        self._count += 1
