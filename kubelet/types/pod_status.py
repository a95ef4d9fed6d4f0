"""Which pod conditions the kubelet owns.

Go: pkg/kubelet/types/pod_status.go
"""

from pkg.api.core import v1

# DIVERGES: the gates of the last two are on by default in 1.36 and are not consulted here.
POD_CONDITIONS_BY_KUBELET = (
    v1.POD_SCHEDULED,
    v1.POD_READY,
    v1.POD_INITIALIZED,
    v1.CONTAINERS_READY,
    v1.POD_RESIZE_IN_PROGRESS,
    v1.POD_RESIZE_PENDING,
    v1.POD_READY_TO_START_CONTAINERS,
    v1.ALL_CONTAINERS_RESTARTING,
)


def pod_condition_by_kubelet(condition_type: str) -> bool:
    """Whether the kubelet alone writes this condition."""
    return condition_type in POD_CONDITIONS_BY_KUBELET


def pod_condition_shared_by_kubelet(condition_type: str) -> bool:
    """Whether the kubelet writes this condition, and others do too."""
    return condition_type == v1.DISRUPTION_TARGET
