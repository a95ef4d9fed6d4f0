"""Define what the threads that fill and drain a queue of changes share.

Go: k8s.io/client-go/tools/cache/fifo.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg.client_go.tools.cache.delta_fifo import Deltas

PopProcessFunc = Callable[[Deltas, bool], None]
"""The function receives the deltas from the queue, and whether they belong to the first list."""

ProcessBatchFunc = Callable[[Deltas, bool], None]
"""The function receives deltas of different objects, and whether they belong to the first list.

It raises TransactionError for the deltas that it could not process.
"""


class FIFOClosedError(Exception):
    """Signal that the queue is closed and empty.

    Go: ErrFIFOClosed
    """

    def __init__(self) -> None:
        super().__init__("DeltaFIFO: manipulating with closed queue")
