"""Define the signals that measure what is left of a resource, and the thresholds for them.

Go: pkg/kubelet/eviction/api/types.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pkg.apimachinery.api import resource


class Signal(enum.StrEnum):
    """Name what is measured: the part of a resource that is left."""

    # The signal is the node's memory minus its working set.
    MEMORY_AVAILABLE = "memory.available"
    # The signal is the free space on the file system of the kubelet's root directory, with volumes and logs.
    NODE_FS_AVAILABLE = "nodefs.available"
    NODE_FS_INODES_FREE = "nodefs.inodesFree"
    # The signal is the free space on the file system of the runtime's images.
    IMAGE_FS_AVAILABLE = "imagefs.available"
    IMAGE_FS_INODES_FREE = "imagefs.inodesFree"
    # The signal is the free space on the file system of the containers' writable layers, which is one of the two above.
    CONTAINER_FS_AVAILABLE = "containerfs.available"
    CONTAINER_FS_INODES_FREE = "containerfs.inodesFree"
    # The signal is the memory that all pods together may use, minus their working set.
    ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
    PID_AVAILABLE = "pid.available"


@dataclass(frozen=True, slots=True)
class ThresholdValue:
    """Represent a threshold as a quantity or as a fraction of the capacity between 0 and 1."""

    quantity: resource.Quantity | None = None
    percentage: float = 0.0


@dataclass(frozen=True, slots=True)
class Threshold:
    """Describe a threshold. The manager evicts pods when less than this value is left."""

    signal: Signal
    value: ThresholdValue
    # The threshold must be met for this time, in seconds, before the manager acts. A hard threshold has 0.
    grace_period: float = 0.0
    # This much more than the value must be left before the threshold counts as no longer met.
    min_reclaim: ThresholdValue | None = None


def get_threshold_quantity(value: ThresholdValue, capacity: resource.Quantity) -> resource.Quantity:
    """Return the quantity that the value means for this capacity."""
    if value.quantity is not None:
        return value.quantity
    return resource.new_quantity(int(capacity.value() * value.percentage), resource.Format.BINARY_SI)
