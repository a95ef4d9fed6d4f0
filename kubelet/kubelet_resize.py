"""Detect that a pod requests other resources, or that a pod has released some.

Go: pkg/kubelet/kubelet.go (recordResizeOperations and what it calls, HandlePodReconcile)
"""

from __future__ import annotations

from kubelet import allocation, metrics
from pkg import features
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api import resource
from pkg.apimachinery.runtime import codec
from pkg.component_helpers import resource as resourcehelper

_ZERO = resource.new_quantity(0)


def record_resize_operations(old_pod: v1.Pod | None, new_pod: v1.Pod) -> bool:
    """Report whether the pod requests other resources than before; count the changes of its containers in a metric."""
    if old_pod is None or isinstance(old_pod, v1.PartialPod):
        return True
    containers = _record_container_resize_operations(old_pod, new_pod)
    return containers or not codec.semantic_equal(old_pod.spec.resources, new_pod.spec.resources)


def _record_container_resize_operations(old_pod: v1.Pod, new_pod: v1.Pod) -> bool:
    before = _resizable_containers(old_pod)
    has_resize = False
    for key, new in _resizable_containers(new_pod).items():
        old = before.get(key)
        if old is None or old is new:
            continue
        for name in (v1.RESOURCE_MEMORY, v1.RESOURCE_CPU):
            for what, wanted, had in (("requests", new.requests, old.requests), ("limits", new.limits, old.limits)):
                operation = resize_operation_for_resources(wanted.get(name, _ZERO), had.get(name, _ZERO))
                if operation:
                    has_resize = True
                    metrics.CONTAINER_REQUESTED_RESIZES.labels(name, what, operation).inc()
    return has_resize


def _resizable_containers(pod: v1.Pod) -> dict[tuple[str, podutil.ContainerType], v1.ResourceRequirements]:
    containers = podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS)
    return {(c.name, kind): c.resources for c, kind in containers if allocation.is_resizable_container(c, kind)}


def resize_operation_for_resources(new: resource.Quantity, old: resource.Quantity) -> str:
    """Return the name of the change; empty if there is none."""
    if new.is_zero() and not old.is_zero():
        return "remove"
    if old.is_zero() and not new.is_zero():
        return "add"
    return {-1: "decrease", 0: "", 1: "increase"}[new.cmp(old)]


def requests_shrank(old_pod: v1.Pod, new_pod: v1.Pod) -> bool:
    """Report whether the CPU or memory requests of the allocated pod, according to its status, have become smaller."""
    gate = features.feature_gate
    opts = resourcehelper.PodResourcesOptions(
        use_status_resources=True,
        skip_pod_level_resources=not gate.enabled(features.POD_LEVEL_RESOURCES),
        in_place_pod_level_resources_vertical_scaling_enabled=gate.enabled(
            features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING
        ),
    )
    old = resourcehelper.pod_requests(old_pod, opts)
    new = resourcehelper.pod_requests(new_pod, opts)
    return any(new.get(r, _ZERO).cmp(old.get(r, _ZERO)) < 0 for r in (v1.RESOURCE_MEMORY, v1.RESOURCE_CPU))
