"""The queue through which pod workers come back to a pod later.

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
