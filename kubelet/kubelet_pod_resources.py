"""Compute the pod-level resources in a pod's status.

Go: pkg/kubelet/kubelet_pods.go (convertToAPIPodLevelResourcesStatus, getEffectiveAllocatedResources)
"""

from __future__ import annotations

from kubelet import cm
from pkg import features, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.component_helpers import resource as resourcehelper

_ZERO = resource.new_quantity(0)
# A memory limit above this value means "unlimited": cgroup v1 then shows the largest number of whole pages.
_UNLIMITED = 2**62


def get_effective_allocated_resources(allocated_pod: v1.Pod) -> v1.ResourceRequirements:
    """Return the pod's own resources; for those that it lacks, the sum of its containers' resources."""
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
    """Return the resources in effect: the cgroup's values for a running pod, otherwise the allocated ones.

    If the cgroup cannot be read, return the values of the old status.
    """
    if allocated_pod.status.phase != v1.POD_RUNNING:
        return get_effective_allocated_resources(allocated_pod)
    try:
        cpu = pcm.get_pod_cgroup_config(allocated_pod, v1.RESOURCE_CPU)
        memory = pcm.get_pod_cgroup_config(allocated_pod, v1.RESOURCE_MEMORY)
    except (OSError, ValueError) as err:
        klog.error_s(err, "failed to read cgroup config for the pod", podName=allocated_pod.metadata.name)
        return _as_before(allocated_pod, old)
    if cpu is None or memory is None:
        # DIVERGES (fault of Go): if pods have no cgroups, the status shows the allocated resources.
        # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).convertToAPIPodLevelResourcesStatus: the status of a pod without
        # resources of its own has no CPU and no limits.
        # Why: the sum of the containers' resources, which the status showed until the pod ran, vanishes.
        # Test: kubelet_pod_resources_test.py:test_convert_to_api_pod_level_resources_status
        return get_effective_allocated_resources(allocated_pod)
    resources = _own_resources(allocated_pod)
    if not _same_weight(resources.requests, cpu):
        _show(resources.requests, v1.RESOURCE_CPU, cm.cpu_requests_from_config(cpu), cm.MIN_SHARES)
    _show(resources.limits, v1.RESOURCE_CPU, cm.cpu_limits_from_config(cpu), cm.MIN_MILLI_CPU_LIMIT)
    _show(resources.limits, v1.RESOURCE_MEMORY, _memory_limit(memory), 0)
    return resources


def _own_resources(allocated_pod: v1.Pod) -> v1.ResourceRequirements:
    """Return the pod's own resources, and its memory request, which no cgroup holds."""
    own = allocated_pod.spec.resources
    resources = v1.deepcopy(own) if own is not None else v1.ResourceRequirements()
    # DIVERGES (fault of Go): a running pod's status shows the current memory request.
    # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).convertToAPIPodLevelResourcesStatus: the request of the earlier status
    # stays as long as the pod runs.
    # Why: after a resize the status would never show the new request.
    # Test: kubelet_pod_resources_test.py:test_convert_to_api_pod_level_resources_status
    if v1.RESOURCE_MEMORY not in resources.requests:
        requests = resourcehelper.pod_requests(allocated_pod, _options())
        if v1.RESOURCE_MEMORY in requests:
            resources.requests[v1.RESOURCE_MEMORY] = requests[v1.RESOURCE_MEMORY]
    return resources


def _as_before(allocated_pod: v1.Pod, old: v1.PodStatus) -> v1.ResourceRequirements:
    """Return the resources that were last known to be in effect, for a cgroup that cannot be read."""
    resources = _own_resources(allocated_pod)
    # DIVERGES (fault of Go): resources stay in the status when the pod has terminated and its cgroup is gone.
    # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).convertToAPIPodLevelResourcesStatus: they stay only if the earlier
    # status says Running.
    # Why: the status of a terminated pod would lose the resources that were in effect.
    # Test: kubelet_pod_resources_test.py:test_convert_to_api_pod_level_resources_status
    if old.phase in (v1.POD_RUNNING, v1.POD_SUCCEEDED, v1.POD_FAILED) and old.resources is not None:
        for name in (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY):
            _keep_before(resources, old.resources, name)
    return resources


def _keep_before(resources: v1.ResourceRequirements, before: v1.ResourceRequirements, name: str) -> None:
    for target, earlier in ((resources.requests, before.requests), (resources.limits, before.limits)):
        if name in earlier:
            target[name] = earlier[name]


def _same_weight(requests: dict[str, resource.Quantity], config: cm.ResourceConfig) -> bool:
    """Report whether the cgroup has the CPU weight of the pod's request. With cgroup v1 return False."""
    # DIVERGES (fault of Go): if the cgroup has the CPU weight of the pod's request, the status shows the request.
    # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).convertToAPIPodLevelResourcesStatus: the Go kubelet converts the
    # weight back to a request, so that 100m become 79m.
    # Why: one weight covers many requests, and clients would see a resize that never happened.
    # Test: kubelet_pod_resources_test.py:test_weight_that_covers_the_request
    request = requests.get(v1.RESOURCE_CPU)
    if request is None or config.cpu_shares is None or not cm.is_cgroup2_unified_mode():
        return False
    wanted = cm.milli_cpu_to_shares(request.milli_value())
    return cm.cpu_shares_to_weight(wanted) == cm.cpu_shares_to_weight(config.cpu_shares)


def _memory_limit(config: cm.ResourceConfig | None) -> resource.Quantity | None:
    # DIVERGES (fault of Go): with cgroup v1 a pod without a memory limit has none in its status.
    # Go: pkg/kubelet/cm/helpers_linux.go, MemoryLimitsFromConfig: the kernel's number for "unlimited" becomes 8 EiB.
    # Why: nobody has set such a limit.
    # Test: kubelet_pod_resources_test.py:test_convert_to_api_pod_level_resources_status
    if config is not None and config.memory is not None and config.memory > _UNLIMITED:
        return None
    return cm.memory_limits_from_config(config)


def _show(
    target: dict[str, resource.Quantity], name: str, measured: resource.Quantity | None, least_milli: int
) -> None:
    """Set the measured value.

    If the measured and the specified value are both at or below the kernel's minimum, the specified value stays,
    because the cgroup cannot tell them apart.
    """
    if measured is None:
        return
    if measured.milli_value() > least_milli or target.get(name, _ZERO).milli_value() > least_milli:
        target[name] = measured
