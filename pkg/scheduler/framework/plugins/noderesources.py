"""Check whether a node has the resources that a pod requests.

Go: pkg/scheduler/framework/plugins/noderesources/fit.go
"""

from __future__ import annotations

from dataclasses import dataclass

from pkg.api.core import v1
from pkg.component_helpers import resource as resourcehelper
from pkg.scheduler import framework
from pkg.scheduler.framework.types import pod_resources_options


@dataclass(frozen=True, slots=True)
class InsufficientResource:
    """Describe a resource that is insufficient."""

    resource_name: str
    reason: str
    requested: int
    used: int
    capacity: int


def fits(pod: v1.Pod, node_info: framework.NodeInfo) -> list[InsufficientResource]:
    """Return the resources of which the node has too little for the pod."""
    request = framework.Resource()
    request.add(resourcehelper.pod_requests(pod, pod_resources_options(use_status=False)))
    return _fits_request(request, node_info)


def _fits_request(request: framework.Resource, node_info: framework.NodeInfo) -> list[InsufficientResource]:
    allocatable, requested = node_info.allocatable, node_info.requested
    lacking = []
    pods, allowed = len(node_info.pods), allocatable.allowed_pod_number
    if pods + 1 > allowed:
        lacking.append(InsufficientResource(v1.RESOURCE_PODS, "Too many pods", 1, pods, allowed))
    wanted = [
        (v1.RESOURCE_CPU, request.milli_cpu, requested.milli_cpu, allocatable.milli_cpu),
        (v1.RESOURCE_MEMORY, request.memory, requested.memory, allocatable.memory),
        (
            v1.RESOURCE_EPHEMERAL_STORAGE,
            request.ephemeral_storage,
            requested.ephemeral_storage,
            allocatable.ephemeral_storage,
        ),
        *(
            (name, amount, requested.scalar_resources.get(name, 0), allocatable.scalar_resources.get(name, 0))
            for name, amount in request.scalar_resources.items()
        ),
    ]
    for name, amount, used, capacity in wanted:
        if amount > 0 and amount > capacity - used:
            lacking.append(InsufficientResource(name, f"Insufficient {name}", amount, used, capacity))
    return lacking
