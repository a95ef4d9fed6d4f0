"""Signals that the node is short of something, and the thresholds for them.

Go: pkg/kubelet/eviction/api/types.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pkg.apimachinery.api import resource


class Signal(enum.StrEnum):
    """What is measured: how much of it is left."""

    MEMORY_AVAILABLE = "memory.available"
    NODE_FS_AVAILABLE = "nodefs.available"
    NODE_FS_INODES_FREE = "nodefs.inodesFree"
    IMAGE_FS_AVAILABLE = "imagefs.available"
    IMAGE_FS_INODES_FREE = "imagefs.inodesFree"
    CONTAINER_FS_AVAILABLE = "containerfs.available"
    CONTAINER_FS_INODES_FREE = "containerfs.inodesFree"
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


def get_threshold_quantity(value: ThresholdValue, capacity: resource.Quantity) -> resource.Quantity:
    """The amount that the value stands for."""
    if value.quantity is not None:
        return value.quantity
    return resource.new_quantity(int(capacity.value() * value.percentage), resource.Format.BINARY_SI)
