"""Define which pod conditions the kubelet owns.

Go: pkg/kubelet/types/pod_status.go
"""

from pkg import features
from pkg.api.core import v1

POD_CONDITIONS_BY_KUBELET = (
    v1.POD_SCHEDULED,
    v1.POD_READY,
    v1.POD_INITIALIZED,
    v1.CONTAINERS_READY,
    v1.POD_RESIZE_IN_PROGRESS,
    v1.POD_RESIZE_PENDING,
)
_GATED = {
    v1.POD_READY_TO_START_CONTAINERS: features.POD_READY_TO_START_CONTAINERS_CONDITION,
    v1.ALL_CONTAINERS_RESTARTING: features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS,
}


def pod_condition_by_kubelet(condition_type: str) -> bool:
    """Report whether only the kubelet sets this condition."""
    if condition_type in POD_CONDITIONS_BY_KUBELET:
        return True
    gate = _GATED.get(condition_type)
    return gate is not None and features.feature_gate.enabled(gate)


def pod_condition_shared_by_kubelet(condition_type: str) -> bool:
    """Report whether both the kubelet and others set this condition."""
    return condition_type == v1.DISRUPTION_TARGET
