"""The resources of a pod as a whole, as its status shows them.

Go: pkg/kubelet/kubelet_pods.go (convertToAPIPodLevelResourcesStatus, getEffectiveAllocatedResources)
"""

from __future__ import annotations

from kubelet import cm
from pkg import features, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.component_helpers import resource as resourcehelper

_ZERO = resource.new_quantity(0)
# Version 1 of cgroups has no word for no limit: it is the greatest number of whole pages.
_UNLIMITED = 2**62


def get_effective_allocated_resources(allocated_pod: v1.Pod) -> v1.ResourceRequirements:
    """The pod's own resources, and where it has none the sum of its containers'."""
    own = allocated_pod.spec.resources
    resources = v1.deepcopy(own) if own is not None else v1.ResourceRequirements()
    resources.requests = resourcehelper.pod_requests(allocated_pod, _options())
    resources.limits = resourcehelper.pod_limits(allocated_pod, _options())
    return resources


def _options() -> resourcehelper.PodResourcesOptions:
    skip = not features.feature_gate.enabled(features.POD_LEVEL_RESOURCES)
    return resourcehelper.PodResourcesOptions(skip_pod_level_resources=skip)


def convert_to_api_pod_level_resources_status(
    pcm: cm.PodContainerManager, allocated_pod: v1.Pod, old: v1.PodStatus
) -> v1.ResourceRequirements:
    """What is in force: what a running pod's cgroup says, else what the pod was given.

    While the cgroup cannot be read, what was shown before stays.
    """
    if allocated_pod.status.phase != v1.POD_RUNNING:
        return get_effective_allocated_resources(allocated_pod)
    own = allocated_pod.spec.resources
    resources = v1.deepcopy(own) if own is not None else v1.ResourceRequirements()
    # DIVERGES: Go shows the request for memory, which stands in no cgroup, as it was before a resize.
    if v1.RESOURCE_MEMORY not in resources.requests:
        requests = resourcehelper.pod_requests(allocated_pod, _options())
        if v1.RESOURCE_MEMORY in requests:
            resources.requests[v1.RESOURCE_MEMORY] = requests[v1.RESOURCE_MEMORY]
    # DIVERGES: Go forgets what was in force when the pod ends, should its cgroup be gone by then.
    started = old.phase in (v1.POD_RUNNING, v1.POD_SUCCEEDED, v1.POD_FAILED)
    before = old.resources if started else None
    cpu = _cgroup_config(pcm, allocated_pod, v1.RESOURCE_CPU)
    _show(resources.requests, v1.RESOURCE_CPU, cm.cpu_requests_from_config(cpu), cm.MIN_SHARES)
    _show(resources.limits, v1.RESOURCE_CPU, cm.cpu_limits_from_config(cpu), cm.MIN_MILLI_CPU_LIMIT)
    if cpu is None and before is not None:
        _keep_before(resources, before, v1.RESOURCE_CPU)
    memory = _cgroup_config(pcm, allocated_pod, v1.RESOURCE_MEMORY)
    _show(resources.limits, v1.RESOURCE_MEMORY, _memory_limit(memory), 0)
    if memory is None and before is not None:
        _keep_before(resources, before, v1.RESOURCE_MEMORY)
    return resources


def _cgroup_config(pcm: cm.PodContainerManager, pod: v1.Pod, name: str) -> cm.ResourceConfig | None:
    """What the pod's cgroup allows; None if it has none, or none that can be read."""
    try:
        return pcm.get_pod_cgroup_config(pod, name)
    except (OSError, ValueError) as err:
        klog.error_s(err, f"failed to read {name} cgroup config for the pod", podName=pod.metadata.name)
        return None


def _keep_before(resources: v1.ResourceRequirements, before: v1.ResourceRequirements, name: str) -> None:
    for target, earlier in ((resources.requests, before.requests), (resources.limits, before.limits)):
        if name in earlier:
            target[name] = earlier[name]


def _memory_limit(config: cm.ResourceConfig | None) -> resource.Quantity | None:
    # DIVERGES: Go shows no limit as one of 8 EiB.
    if config is not None and config.memory is not None and config.memory > _UNLIMITED:
        return None
    return cm.memory_limits_from_config(config)


def _show(
    target: dict[str, resource.Quantity], name: str, measured: resource.Quantity | None, least_milli: int
) -> None:
    """A figure that the cgroup cannot tell apart, as the kernel has least ones, stays as it was asked for."""
    if measured is None:
        return
    if measured.milli_value() > least_milli or target.get(name, _ZERO).milli_value() > least_milli:
        target[name] = measured
