"""Compute the requests and limits of a whole pod from its containers and its pod-level resources.

Init containers run one after the other, so the largest of them counts. Sidecars keep running, so each of them adds to
the init containers after it and to the regular containers.

Go: k8s.io/component-helpers/resource/helpers.go
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

ResourceList = dict[str, Quantity]


class ContainerType(enum.IntFlag):
    CONTAINERS = 1
    INIT_CONTAINERS = 2


CONTAINERS = ContainerType.CONTAINERS
INIT_CONTAINERS = ContainerType.INIT_CONTAINERS


@dataclass(slots=True)
class PodResourcesOptions:
    """Describe how pod_requests and pod_limits compute."""

    # `use_status_resources` includes the resources in the pod's status, as in-place resizing requires. The next option
    # includes the pod-level resources in the status.
    use_status_resources: bool = False
    in_place_pod_level_resources_vertical_scaling_enabled: bool = False
    # `exclude_overhead` leaves out the overhead of the RuntimeClass.
    exclude_overhead: bool = False
    # This function is called with the effective resources of each container.
    container_fn: Callable[[ResourceList, ContainerType], None] | None = None
    # These values replace requests that a container does not make. An explicit request of zero is kept.
    non_missing_container_requests: ResourceList = field(default_factory=dict)
    skip_pod_level_resources: bool = False
    skip_container_level_resources: bool = False
    use_dra_node_allocatable_resource_claim_status: bool = False


_SUPPORTED_POD_LEVEL_RESOURCES = frozenset({v1.RESOURCE_CPU, v1.RESOURCE_MEMORY})


def supported_pod_level_resources() -> set[str]:
    """Return the resources that pods can request as a whole; the last one stands for all names with this prefix."""
    return {*_SUPPORTED_POD_LEVEL_RESOURCES, v1.RESOURCE_HUGE_PAGES_PREFIX}


def is_supported_pod_level_resource(name: str) -> bool:
    return name in _SUPPORTED_POD_LEVEL_RESOURCES or name.startswith(v1.RESOURCE_HUGE_PAGES_PREFIX)


def is_pod_level_resources_set(pod: v1.Pod) -> bool:
    """Report whether the pod has pod-level requests or limits."""
    return is_pod_level_requests_set(pod) or is_pod_level_limits_set(pod)


def is_pod_level_requests_set(pod: v1.Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(is_supported_pod_level_resource, resources.requests))


def is_pod_level_limits_set(pod: v1.Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(is_supported_pod_level_resource, resources.limits))


def pod_requests(pod: v1.Pod, opts: PodResourcesOptions) -> ResourceList:
    """Return the pod's requests; pod-level requests replace the sums of the containers."""
    requests: ResourceList = {}
    if not opts.skip_container_level_resources:
        requests = aggregate_container_requests(pod, opts)
    spec = pod.spec.resources
    if not opts.skip_pod_level_resources and spec is not None and is_pod_level_requests_set(pod):
        own: Mapping[str, Quantity] = spec.requests
        if _uses_pod_level_status(pod, opts):
            assert pod.status.resources is not None
            own = _determine_effective_requests(
                pod, spec.requests, pod.status.resources.requests, pod.status.allocated_resources
            )
        _set_supported(requests, spec.requests, own)
    if not opts.exclude_overhead:
        _add_resource_list(requests, pod.spec.overhead)
    return requests


def pod_limits(pod: v1.Pod, opts: PodResourcesOptions) -> ResourceList:
    """Return the pod's limits; pod-level limits replace the containers', and overhead adds to limits that are set."""
    limits = aggregate_container_limits(pod, opts)
    spec = pod.spec.resources
    if not opts.skip_pod_level_resources and spec is not None and is_pod_level_resources_set(pod):
        own: Mapping[str, Quantity] = spec.limits
        if _uses_pod_level_status(pod, opts):
            assert pod.status.resources is not None
            own = _determine_effective_limits(pod, spec.limits, pod.status.resources.limits)
        _set_supported(limits, spec.limits, own)
    if not opts.exclude_overhead:
        for name, quantity in pod.spec.overhead.items():
            if name in limits and not limits[name].is_zero():
                limits[name] = limits[name].add(quantity)
    return limits


def _uses_pod_level_status(pod: v1.Pod, opts: PodResourcesOptions) -> bool:
    return (
        opts.in_place_pod_level_resources_vertical_scaling_enabled
        and opts.use_status_resources
        and pod.status.resources is not None
    )


def _set_supported(target: ResourceList, names: Mapping[str, Quantity], values: Mapping[str, Quantity]) -> None:
    for name in filter(is_supported_pod_level_resource, names):
        target[name] = values.get(name, _ZERO)


_ZERO = Quantity(0)


def aggregate_container_requests(pod: v1.Pod, opts: PodResourcesOptions) -> ResourceList:
    """Return the sum of the containers' requests."""

    def effective(container: v1.Container, status: v1.ContainerStatus | None) -> Mapping[str, Quantity]:
        requests: Mapping[str, Quantity] = container.resources.requests
        if status is not None and status.resources is not None:
            requests = _determine_effective_requests(
                pod, requests, status.resources.requests, status.allocated_resources
            )
        return _apply_non_missing(requests, opts.non_missing_container_requests)

    requests = _aggregate(pod, opts, effective)
    if opts.use_dra_node_allocatable_resource_claim_status:
        for claim in pod.status.node_allocatable_resource_claim_statuses:
            _add_resource_list(requests, claim.resources)
    return requests


def aggregate_container_limits(pod: v1.Pod, opts: PodResourcesOptions) -> ResourceList:
    """Return the sum of the containers' limits."""

    def effective(container: v1.Container, status: v1.ContainerStatus | None) -> Mapping[str, Quantity]:
        if status is None or status.resources is None:
            return container.resources.limits
        return _determine_effective_limits(pod, container.resources.limits, status.resources.limits)

    return _aggregate(pod, opts, effective)


def _aggregate(
    pod: v1.Pod,
    opts: PodResourcesOptions,
    effective: Callable[[v1.Container, v1.ContainerStatus | None], Mapping[str, Quantity]],
) -> ResourceList:
    """Add up the containers, and make sure that the total covers each init container with the sidecars before it."""
    statuses: dict[str, v1.ContainerStatus] = {}
    if opts.use_status_resources:
        statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}

    def report(resources: Mapping[str, Quantity], kind: ContainerType) -> None:
        if opts.container_fn is not None:
            opts.container_fn(dict(resources), kind)

    total: ResourceList = {}
    for container in pod.spec.containers:
        resources = effective(container, statuses.get(container.name))
        report(resources, CONTAINERS)
        _add_resource_list(total, resources)

    sidecars: ResourceList = {}
    init: ResourceList = {}
    for container in pod.spec.init_containers:
        is_sidecar = container.restart_policy == v1.CONTAINER_RESTART_POLICY_ALWAYS
        resources = effective(container, statuses.get(container.name) if is_sidecar else None)
        if is_sidecar:
            _add_resource_list(total, resources)
            _add_resource_list(sidecars, resources)
            during = sidecars
        else:
            during = dict(resources)
            _add_resource_list(during, sidecars)
        report(during, INIT_CONTAINERS)
        _max_resource_list(init, during)
    _max_resource_list(total, init)
    return total


def _determine_effective_requests(
    pod: v1.Pod,
    spec: Mapping[str, Quantity],
    actuated: Mapping[str, Quantity],
    allocated: Mapping[str, Quantity],
) -> ResourceList:
    """Return the maximum of the desired, actuated and allocated requests.

    Desired requests are left out if the resize is infeasible.
    """
    if is_pod_resize_infeasible(pod):
        return _max(actuated, allocated)
    return _max(spec, actuated, allocated)


def _determine_effective_limits(
    pod: v1.Pod, spec: Mapping[str, Quantity], actuated: Mapping[str, Quantity]
) -> ResourceList:
    if is_pod_resize_infeasible(pod):
        return dict(actuated)
    return _max(spec, actuated)


def is_pod_resize_infeasible(pod: v1.Pod) -> bool:
    """Report whether the pod waits for a resize that this node can never perform."""
    return _resize_pending_reason(pod) == v1.POD_REASON_INFEASIBLE


def _resize_pending_reason(pod: v1.Pod) -> str | None:
    conditions = pod.status.conditions
    return next((c.reason for c in conditions if c.type == v1.POD_RESIZE_PENDING), None)


def _apply_non_missing(requests: Mapping[str, Quantity], non_missing: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    return {**non_missing, **requests} if non_missing else requests


def _add_resource_list(target: ResourceList, addend: Mapping[str, Quantity]) -> None:
    for name, quantity in addend.items():
        target[name] = target[name].add(quantity) if name in target else quantity


def _max_resource_list(target: ResourceList, other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        if name not in target or quantity.cmp(target[name]) > 0:
            target[name] = quantity


def _max(*lists: Mapping[str, Quantity]) -> ResourceList:
    result: ResourceList = {}
    for other in lists:
        _max_resource_list(result, other)
    return result
