"""Allocate the resources of the node to pods, and decide on their resizes.

This package admits pods and their resizes, and keeps the allocated resources over restarts.

Go: pkg/kubelet/allocation
"""

from kubelet.allocation.allocation_manager import (
    ALLOCATED_PODS_STATE_FILE,
    TRIGGER_REASON_POD_RESIZED,
    TRIGGER_REASON_POD_TERMINATED,
    TRIGGER_REASON_POD_UPDATED,
    TRIGGER_REASON_PODS_ADDED,
    TRIGGER_REASON_PODS_REMOVED,
    AllocatedPod,
    Manager,
    is_resizable_container,
)
from kubelet.allocation.features import (
    is_in_place_pod_level_resources_vertical_scaling_allowed,
    is_in_place_pod_vertical_scaling_allowed,
)
from kubelet.allocation.handlers import PodResizesAdmitHandler

__all__ = [
    "ALLOCATED_PODS_STATE_FILE",
    "TRIGGER_REASON_PODS_ADDED",
    "TRIGGER_REASON_PODS_REMOVED",
    "TRIGGER_REASON_POD_RESIZED",
    "TRIGGER_REASON_POD_TERMINATED",
    "TRIGGER_REASON_POD_UPDATED",
    "AllocatedPod",
    "Manager",
    "PodResizesAdmitHandler",
    "is_in_place_pod_level_resources_vertical_scaling_allowed",
    "is_in_place_pod_vertical_scaling_allowed",
    "is_resizable_container",
]
