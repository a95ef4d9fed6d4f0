"""Signals that the node is short of something, and the thresholds for them.

Go: pkg/kubelet/eviction/api/types.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pkg.apimachinery.api import resource


class Signal(enum.StrEnum):
    """What is measured: how much of it is left."""

    # Of the node's memory, what is not in the working set.
    MEMORY_AVAILABLE = "memory.available"
    # The file system of the kubelet's root directory: volumes, logs.
    NODE_FS_AVAILABLE = "nodefs.available"
    NODE_FS_INODES_FREE = "nodefs.inodesFree"
    # The file system of the runtime's images.
    IMAGE_FS_AVAILABLE = "imagefs.available"
    IMAGE_FS_INODES_FREE = "imagefs.inodesFree"
    # The file system of containers' writable layers, which is one of the two above.
    CONTAINER_FS_AVAILABLE = "containerfs.available"
    CONTAINER_FS_INODES_FREE = "containerfs.inodesFree"
    # Of the memory that pods may have together, what is not in their working set.
    ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
    PID_AVAILABLE = "pid.available"


@dataclass(frozen=True, slots=True)
class ThresholdValue:
    """An amount, or else a part of the capacity between 0 and 1."""

    quantity: resource.Quantity | None = None
    percentage: float = 0.0


@dataclass(frozen=True, slots=True)
class Threshold:
    """Pods are evicted when less than this is left."""

    signal: Signal
    value: ThresholdValue
    # Seconds for which less must be left before anything is done; 0 for a hard threshold.
    grace_period: float = 0.0
    # How much more than the value must be left before the threshold counts as no longer met.
    min_reclaim: ThresholdValue | None = None


def get_threshold_quantity(value: ThresholdValue, capacity: resource.Quantity) -> resource.Quantity:
    """The amount that the value stands for."""
    if value.quantity is not None:
        return value.quantity
    return resource.new_quantity(int(capacity.value() * value.percentage), resource.Format.BINARY_SI)
