"""What a queue of changes is to those who fill and drain it.

Go: k8s.io/client-go/tools/cache/fifo.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg.client_go.tools.cache.delta_fifo import Deltas

PopProcessFunc = Callable[[Deltas, bool], None]
"""Takes the deltas that came out of the queue, and whether they are of the first list."""

ProcessBatchFunc = Callable[[Deltas, bool], None]
"""As PopProcessFunc, for deltas of as many objects; raises TransactionError for those that it could not process."""


class FIFOClosedError(Exception):
    """The queue is closed and empty. Go: ErrFIFOClosed"""

    def __init__(self) -> None:
        super().__init__("DeltaFIFO: manipulating with closed queue")
