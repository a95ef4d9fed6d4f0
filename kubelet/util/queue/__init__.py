"""Queue the pods that pod workers sync later.

Go: pkg/kubelet/util/queue
"""

from kubelet.util.queue.work_queue import (
    BasicWorkQueue,
    WorkQueue,
)

__all__ = [
    "BasicWorkQueue",
    "WorkQueue",
]
