"""Compute the amounts of memory from which a container's OOM score follows.

Go: pkg/kubelet/qos/helpers.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.component_helpers import resource as resourcehelper


def memory_request(container: v1.Container) -> int:
    """Return the container's memory request in bytes, or 0 without one."""
    quantity = container.resources.requests.get(v1.RESOURCE_MEMORY)
    return quantity.value() if quantity is not None else 0


def min_regular_container_memory(pod: v1.Pod) -> int:
    """Return the smallest memory request of the regular containers, in bytes."""
    return min(memory_request(container) for container in pod.spec.containers)


def remaining_pod_mem_req_per_container(pod: v1.Pod) -> int:
    """Return each container's share of the pod-level memory request that no container requests."""
    pod_request = pod.spec.resources.requests.get(v1.RESOURCE_MEMORY) if pod.spec.resources is not None else None
    if pod_request is None or pod_request.is_zero():
        return 0
    containers = len(pod.spec.containers) + len(pod.spec.init_containers)
    aggregated = resourcehelper.aggregate_container_requests(pod, resourcehelper.PodResourcesOptions())
    own = aggregated.get(v1.RESOURCE_MEMORY)
    remaining = pod_request.value() - (own.value() if own is not None else 0)
    return int(remaining / containers)
