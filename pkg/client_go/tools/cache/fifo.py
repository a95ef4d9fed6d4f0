"""What a queue of changes is to those who fill and drain it.

Go: k8s.io/client-go/tools/cache/fifo.go
"""

from __future__ import annotations


class FIFOClosedError(Exception):
    """The queue is closed and empty.  Go: ErrFIFOClosed"""

    def __init__(self) -> None:
        super().__init__("DeltaFIFO: manipulating with closed queue")
