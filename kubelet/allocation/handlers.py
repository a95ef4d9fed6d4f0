"""Reject the resizes that this node can never allocate.

Go: pkg/kubelet/allocation/handlers.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet import lifecycle, metrics
from kubelet import types as kubetypes
from kubelet.allocation.allocation_manager import is_resizable_container
from kubelet.allocation.features import (
    is_in_place_pod_level_resources_vertical_scaling_allowed,
    is_in_place_pod_vertical_scaling_allowed,
)
from kubelet.util import format
from pkg import features, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api import resource
from pkg.apimachinery.runtime import codec
from pkg.apis.core.v1.helper import qos as v1qos

if TYPE_CHECKING:
    from kubelet import cm
    from kubelet.allocation.allocation_manager import Manager

# With these policies, containers get exclusive CPUs and memory nodes.
# Go: cpumanager.PolicyStatic, memorymanager.PolicyTypeStatic
_CPU_MANAGER_POLICY_STATIC = "static"
_MEMORY_MANAGER_POLICY_STATIC = "Static"

_ZERO = resource.new_quantity(0)


class PodResizesAdmitHandler:
    """Decide on resizes of pods; the handler admits every new pod."""

    def __init__(
        self,
        container_manager: cm.ContainerManager,
        container_runtime: kubecontainer.Runtime,
        allocation_manager: Manager,
    ) -> None:
        self._container_manager = container_manager
        self._container_runtime = container_runtime
        self._allocation_manager = allocation_manager

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        if attrs.operation != lifecycle.RESIZE_OPERATION:
            return lifecycle.PodAdmitResult(admit=True)
        pod = attrs.pod
        allocated_pod = self._allocation_manager.update_pod_from_allocation(pod).pod
        permission = is_in_place_pod_vertical_scaling_allowed(pod)
        if not permission.allowed:
            return _infeasible(permission.message, permission.reason)
        if disallow_resize_for_swappable_containers(self._container_runtime, pod, allocated_pod):
            return _infeasible("In-place resize of containers with swap is not supported.", "swap_limitation")
        if not codec.semantic_equal(pod.spec.resources, allocated_pod.spec.resources):
            permission = is_in_place_pod_level_resources_vertical_scaling_allowed(pod)
            if not permission.allowed:
                return _infeasible(permission.message, permission.reason)
        if v1qos.get_pod_qos(pod) == v1.POD_QOS_GUARANTEED:
            return self._admit_guaranteed(pod)
        return lifecycle.PodAdmitResult(admit=True)

    def _admit_guaranteed(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        """Admit the resize of a guaranteed pod, unless exclusive CPUs or memory would have to change."""
        config = self._container_manager.get_node_config()
        gate = features.feature_gate
        if (
            not gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING_EXCLUSIVE_CPUS)
            and config.cpu_manager_policy == _CPU_MANAGER_POLICY_STATIC
            and self._guaranteed_pod_resource_resize_required(pod, v1.RESOURCE_CPU)
        ):
            what, metric = "CPU Manager", "guaranteed_pod_cpu_manager_static_policy"
            policy = _CPU_MANAGER_POLICY_STATIC
        elif (
            not gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING_EXCLUSIVE_MEMORY)
            and config.memory_manager_policy == _MEMORY_MANAGER_POLICY_STATIC
            and self._guaranteed_pod_resource_resize_required(pod, v1.RESOURCE_MEMORY)
        ):
            what, metric = "Memory Manager", "guaranteed_pod_memory_manager_static_policy"
            policy = _MEMORY_MANAGER_POLICY_STATIC
        else:
            return lifecycle.PodAdmitResult(admit=True)
        message = f'Resize is infeasible for Guaranteed Pods alongside {what} policy "{policy}"'
        klog.v(3).info_s(message, pod=format.pod(pod))
        return _infeasible(message, metric)

    def _guaranteed_pod_resource_resize_required(self, pod: v1.Pod, resource_name: str) -> bool:
        for container, kind in podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS):
            if not is_resizable_container(container, kind):
                continue
            # A guaranteed container's requests equal its limits.
            wanted = container.resources.requests.get(resource_name, _ZERO)
            allocated = self._allocation_manager.get_container_resource_allocation(pod.metadata.uid, container.name)
            given = allocated.requests.get(resource_name, _ZERO) if allocated is not None else _ZERO
            if wanted.cmp(given) != 0:
                return True
        return False


def disallow_resize_for_swappable_containers(
    runtime: kubecontainer.Runtime, desired_pod: v1.Pod, allocated_pod: v1.Pod
) -> bool:
    """Report whether a container would need another swap limit, which cannot change while the container runs."""
    spec = allocated_pod.spec
    allocated = {container.name: container for container in (*spec.containers, *spec.init_containers)}
    for desired in (*desired_pod.spec.containers, *desired_pod.spec.init_containers):
        container = allocated.get(desired.name)
        if container is None or _restarts_for_memory(container):
            continue
        wanted = desired.resources.requests.get(v1.RESOURCE_MEMORY, _ZERO)
        if wanted.cmp(container.resources.requests.get(v1.RESOURCE_MEMORY, _ZERO)) == 0:
            continue
        behaviors = (
            runtime.get_container_swap_behavior(desired_pod, desired),
            runtime.get_container_swap_behavior(allocated_pod, container),
        )
        if any(behavior != kubetypes.NO_SWAP for behavior in behaviors):
            return True
    return False


def _restarts_for_memory(container: v1.Container) -> bool:
    policies = (p for p in container.resize_policy if p.resource_name == v1.RESOURCE_MEMORY)
    first = next(policies, None)
    return first is not None and first.restart_policy == v1.RESTART_CONTAINER


def _infeasible(message: str, metric_reason: str) -> lifecycle.PodAdmitResult:
    metrics.POD_INFEASIBLE_RESIZES.labels(metric_reason).inc()
    return lifecycle.PodAdmitResult(admit=False, reason=v1.POD_REASON_INFEASIBLE, message=message)
