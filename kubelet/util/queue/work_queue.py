"""Queue the pods that are to be synced at a later time.

Go: pkg/kubelet/util/queue/work_queue.go
"""

from __future__ import annotations

import heapq
import threading
from typing import Protocol

from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types


class WorkQueue(Protocol):
    """Define a queue of items that become ready at their times. All methods are thread-safe."""

    def get_work(self) -> list[types.UID]:
        """Remove and return the items that are ready, the most overdue one first."""
        ...

    def enqueue(self, item: types.UID, delay: float) -> None:
        """Make the item ready `delay` seconds from now; this replaces an earlier time."""
        ...


class BasicWorkQueue:
    """Run the work queue of the pod workers.

    Go checks every item at each call. Here a heap has the earliest deadline on top, so that a call without a ready item
    costs nothing. When a later enqueue replaces the deadline of an item, the old entry stays in the heap until its
    time. It does not count, because its deadline differs from the item's.
    """

    def __init__(self, clock: clockpkg.Clock) -> None:
        self._clock = clock
        # The lock guards _deadlines and _heap.
        self._lock = threading.Lock()
        self._deadlines: dict[types.UID, float] = {}
        self._heap: list[tuple[float, types.UID]] = []

    def get_work(self) -> list[types.UID]:
        with self._lock:
            if not self._heap:
                return []
            now = self._clock.monotonic()
            items = []
            while self._heap and self._heap[0][0] < now:
                deadline, item = heapq.heappop(self._heap)
                if self._deadlines.get(item) == deadline:
                    del self._deadlines[item]
                    items.append(item)
            return items

    def enqueue(self, item: types.UID, delay: float) -> None:
        with self._lock:
            deadline = self._clock.monotonic() + delay
            if self._deadlines.get(item) != deadline:
                self._deadlines[item] = deadline
                heapq.heappush(self._heap, (deadline, item))
            if len(self._heap) > 2 * len(self._deadlines) + 64:
                self._drop_replaced_locked()

    def _drop_replaced_locked(self) -> None:
        """Rebuild the heap without replaced entries, so that repeated enqueues do not fill it."""
        self._heap = [(deadline, item) for item, deadline in self._deadlines.items()]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        """Return the number of waiting items."""
        with self._lock:
            return len(self._deadlines)
