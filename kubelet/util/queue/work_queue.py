"""A queue of pods that are to be synced at a later time.

Go: pkg/kubelet/util/queue/work_queue.go
"""

from __future__ import annotations

import heapq
import threading
from typing import Protocol

from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types


class WorkQueue(Protocol):
    """Items that become ready when their time has come. Safe from any thread."""

    def get_work(self) -> list[types.UID]:
        """Take out and return the items that are ready, the most overdue one first."""
        ...

    def enqueue(self, item: types.UID, delay: float) -> None:
        """Make item ready `delay` seconds from now, whatever time it was queued for before."""
        ...


class BasicWorkQueue:
    """The work queue of the pod workers.

    Go looks at every item each time. Here a heap keeps the earliest deadline on top, so that asking costs
    nothing while nothing is ready. An entry that a later enqueue of its item replaced stays in the heap until
    its time has come, and is told by its deadline differing from the item's.
    """

    def __init__(self, clock: clockpkg.Clock) -> None:
        self._clock = clock
        # Guards _deadlines and _heap.
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
        """Rebuild the heap from what counts: items enqueued anew again and again must not pile up."""
        self._heap = [(deadline, item) for item, deadline in self._deadlines.items()]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        """The number of items waiting."""
        with self._lock:
            return len(self._deadlines)
