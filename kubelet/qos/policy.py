"""Compute the OOM score adjustment of a container.

Go: pkg/kubelet/qos/policy.go
"""

from __future__ import annotations

from kubelet import types as kubetypes
from kubelet.qos import helpers
from pkg.api.core import v1
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_helpers import resource as resourcehelper

KUBELET_OOM_SCORE_ADJ = -999
_GUARANTEED_OOM_SCORE_ADJ = -997
_BESTEFFORT_OOM_SCORE_ADJ = 1000


def get_container_oom_score_adjust(pod: v1.Pod, container: v1.Container, memory_capacity: int) -> int:
    """Return a value from -997 to 1000; the kernel kills processes with higher values first.

    `memory_capacity` is the node's memory in bytes.
    """
    if kubetypes.is_node_critical_pod(pod):
        return _GUARANTEED_OOM_SCORE_ADJ
    match v1qos.get_pod_qos(pod):
        case v1.POD_QOS_GUARANTEED:
            return _GUARANTEED_OOM_SCORE_ADJ
        case v1.POD_QOS_BEST_EFFORT:
            return _BESTEFFORT_OOM_SCORE_ADJ
    adjust = _burstable_oom_score_adjust(pod, container, memory_capacity)
    # The score of a guaranteed pod that uses all memory is 10. Stay above that, and below best effort.
    if adjust < 1000 + _GUARANTEED_OOM_SCORE_ADJ:
        return 1000 + _GUARANTEED_OOM_SCORE_ADJ
    return adjust - 1 if adjust == _BESTEFFORT_OOM_SCORE_ADJ else adjust


def _burstable_oom_score_adjust(pod: v1.Pod, container: v1.Container, memory_capacity: int) -> int:
    """Return the adjustment for a burstable container.

    A container that requests a tenth of the memory gets 900, so it reaches a score of 1000 when it exceeds its request.
    """
    share = 0
    if resourcehelper.is_pod_level_requests_set(pod):
        share = helpers.remaining_pod_mem_req_per_container(pod)
    adjust = 1000 - 1000 * (helpers.memory_request(container) + share) // memory_capacity
    if _is_sidecar_container(pod, container):
        # A sidecar must live at least as long as the containers that it serves.
        least = helpers.min_regular_container_memory(pod) + share
        adjust = min(adjust, 1000 - 1000 * least // memory_capacity)
    return adjust


def _is_sidecar_container(pod: v1.Pod, container: v1.Container) -> bool:
    if container.restart_policy != v1.CONTAINER_RESTART_POLICY_ALWAYS:
        return False
    return any(init.name == container.name for init in pod.spec.init_containers)
