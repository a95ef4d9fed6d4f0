"""Allocate the numbers of a range with a bitmap.

Go: pkg/registry/core/service/allocator/bitmap.go
"""

from __future__ import annotations

import itertools
import random
import threading


class AllocationBitmap:
    """Record which numbers from 0 to `maximum` - 1 are allocated.

    All methods are thread-safe.
    """

    def __init__(self, maximum: int) -> None:
        self._max = maximum
        self._lock = threading.Lock()
        # The lock guards the bitmap, in which a set bit is an allocated number, and the number of set bits.
        self._allocated = 0
        self._count = 0

    def allocate(self, offset: int) -> bool:
        """Allocate this number, or return False if it is already allocated.

        Raise ValueError if it is out of range.
        """
        if not 0 <= offset < self._max:
            raise ValueError(f"offset {offset} out of range [0,{self._max}]")
        with self._lock:
            if self._is_set_locked(offset):
                return False
            self._set_locked(offset)
            return True

    def allocate_next(self) -> int | None:
        """Allocate a free number, or return None if there is none.

        The search starts at a random number, so that a released number is not likely to be reused next.
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
        """Release a number; do nothing if it is not allocated."""
        with self._lock:
            if self._is_set_locked(offset):
                self._allocated &= ~(1 << offset)
                self._count -= 1

    def has(self, offset: int) -> bool:
        with self._lock:
            return self._is_set_locked(offset)

    def free(self) -> int:
        """Return how many numbers are free."""
        with self._lock:
            return self._max - self._count

    def _is_set_locked(self, offset: int) -> bool:
        return bool(self._allocated >> offset & 1)

    def _set_locked(self, offset: int) -> None:
        self._allocated |= 1 << offset
        self._count += 1
