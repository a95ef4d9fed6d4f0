"""Hold the status of each pod as the kubelet knows it, and generate its conditions.

Go: pkg/kubelet/status
"""

from kubelet.status.generate import (
    CONTAINERS_NOT_INITIALIZED,
    CONTAINERS_NOT_READY,
    POD_COMPLETED,
    POD_FAILED,
    READINESS_GATES_NOT_READY,
    RESTART_ALL_CONTAINERS_STARTED,
    UNKNOWN_CONTAINER_STATUSES,
    generate_all_containers_restarting_condition,
    generate_containers_ready_condition,
    generate_pod_initialized_condition,
    generate_pod_ready_condition,
    generate_pod_ready_to_start_containers_condition,
)
from kubelet.status.status_manager import (
    Manager,
    PodDeletionSafetyProvider,
    PodManager,
    PodStartupLatencyStateHelper,
    PodStatusProvider,
    PodUpdateNotifier,
    need_to_reconcile_pod_readiness,
)

__all__ = [
    "CONTAINERS_NOT_INITIALIZED",
    "CONTAINERS_NOT_READY",
    "POD_COMPLETED",
    "POD_FAILED",
    "READINESS_GATES_NOT_READY",
    "RESTART_ALL_CONTAINERS_STARTED",
    "UNKNOWN_CONTAINER_STATUSES",
    "Manager",
    "PodDeletionSafetyProvider",
    "PodManager",
    "PodStartupLatencyStateHelper",
    "PodStatusProvider",
    "PodUpdateNotifier",
    "generate_all_containers_restarting_condition",
    "generate_containers_ready_condition",
    "generate_pod_initialized_condition",
    "generate_pod_ready_condition",
    "generate_pod_ready_to_start_containers_condition",
    "need_to_reconcile_pod_readiness",
]
