"""Convert the resource amounts of a pod's spec to cgroup settings, and back.

Go: pkg/kubelet/cm/helpers_linux.go, helpers.go
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kubelet.cm import containermap
from kubelet.cm.cgroup_common import SYSTEMD, to_systemd
from kubelet.cm.types import CgroupName, ResourceConfig
from kubelet.eviction import api as evictionapi
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource as quantities
from pkg.apimachinery.api.resource import Quantity
from pkg.apis.core.v1 import helper as v1helper
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_helpers import resource
from pkg.util import procfs

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi

MIN_SHARES = 2
MAX_SHARES = 262144
SHARES_PER_CPU = 1024
MILLI_CPU_TO_CPU = 1000
# QUOTA_PERIOD is the default CFS period, MIN_QUOTA_PERIOD the lowest quota that the kernel accepts; both in µs.
QUOTA_PERIOD = 100_000
MIN_QUOTA_PERIOD = 1_000
# In cgroup version 2 the kernel never reclaims memory below memory.min, and reclaims memory below memory.low last.
MEMORY_MIN = "memory.min"
MEMORY_LOW = "memory.low"
# With this memory reservation policy, the kernel protects the memory that pods request.
TIERED_RESERVATION = "TieredReservation"
# A lower CPU limit gives the same cgroup quota as this one, so the quota does not show which of them is set.
MIN_MILLI_CPU_LIMIT = 10
_ZERO = quantities.new_quantity(0)


def milli_cpu_to_quota(milli_cpu: int, period: int) -> int:
    """Return the CFS quota for a CPU limit; 0 means no quota. The quota and the period are in µs."""
    if milli_cpu == 0:
        return 0
    return max(milli_cpu * period // MILLI_CPU_TO_CPU, MIN_QUOTA_PERIOD)


def milli_cpu_to_shares(milli_cpu: int) -> int:
    """Return the CPU shares for thousandths of a core."""
    if milli_cpu == 0:
        return MIN_SHARES
    return min(max(milli_cpu * SHARES_PER_CPU // MILLI_CPU_TO_CPU, MIN_SHARES), MAX_SHARES)


def shares_to_milli_cpu(shares: int) -> int:
    """Return thousandths of a core, or 0 for no shares.

    The result is rounded up so that converting a request to shares and back gives the request again.
    """
    return -(-shares * MILLI_CPU_TO_CPU // SHARES_PER_CPU) if shares >= MIN_SHARES else 0


def quota_to_milli_cpu(quota: int, period: int) -> int:
    """Return thousandths of a core, or 0 for no quota. The quota and the period are in µs."""
    return 0 if quota == -1 else quota * MILLI_CPU_TO_CPU // period


def cpu_requests_from_config(config: ResourceConfig | None) -> Quantity | None:
    """Return the CPU request that the cgroup's shares stand for, or None if there is none.

    Go: CPURequestsFromConfig
    """
    milli = 0 if config is None or config.cpu_shares is None else shares_to_milli_cpu(config.cpu_shares)
    return quantities.new_milli_quantity(milli) if milli > 0 else None


def cpu_limits_from_config(config: ResourceConfig | None) -> Quantity | None:
    """Return the CPU limit that the cgroup's quota stands for, or None if there is none.

    Go: CPULimitsFromConfig
    """
    if config is None or config.cpu_quota is None or not config.cpu_period:
        return None
    milli = quota_to_milli_cpu(config.cpu_quota, config.cpu_period)
    return quantities.new_milli_quantity(milli) if milli > 0 else None


def memory_limits_from_config(config: ResourceConfig | None) -> Quantity | None:
    """Return the memory limit of the cgroup, or None if there is none.

    Go: MemoryLimitsFromConfig
    """
    if config is None or config.memory is None or config.memory <= 0:
        return None
    return quantities.new_quantity(config.memory, quantities.Format.BINARY_SI)


def huge_page_limits(resources: dict[str, Quantity]) -> dict[int, int]:
    """Return the bytes of huge pages by page size in bytes."""
    limits: dict[int, int] = {}
    for name, quantity in resources.items():
        if v1helper.is_huge_page_resource_name(name):
            size = v1helper.huge_page_size_from_resource_name(name).value()
            limits[size] = limits.get(size, 0) + quantity.value()
    return limits


def resource_config_for_pod(
    pod: v1.Pod,
    enforce_cpu_limits: bool,
    cpu_period: int,
    enforce_memory_qos: bool = False,
    memory_reservation_policy: str = "None",
) -> ResourceConfig:
    """Return the settings of the pod's cgroup, which depend on its QoS class. `cpu_period` is in µs."""
    opts = resource.PodResourcesOptions(skip_pod_level_resources=not _pod_level_resources_enabled())
    requests = resource.pod_requests(pod, opts)
    limits = resource.pod_limits(pod, opts)
    cpu_limit = _milli(limits, v1.RESOURCE_CPU)
    shares = milli_cpu_to_shares(_milli(requests, v1.RESOURCE_CPU))
    config = ResourceConfig(cpu_shares=shares, huge_page_limit=huge_page_limits(requests))
    quota = milli_cpu_to_quota(cpu_limit, cpu_period) if enforce_cpu_limits else -1
    memory = limits[v1.RESOURCE_MEMORY].value() if v1.RESOURCE_MEMORY in limits else None
    match v1qos.get_pod_qos(pod):
        case v1.POD_QOS_GUARANTEED:
            config.cpu_quota, config.cpu_period, config.memory = quota, cpu_period, memory
        case v1.POD_QOS_BURSTABLE:
            if _all_limited(pod, limits, v1.RESOURCE_CPU):
                config.cpu_quota, config.cpu_period = quota, cpu_period
            if _all_limited(pod, limits, v1.RESOURCE_MEMORY):
                config.memory = memory
        case _:
            config.cpu_shares = MIN_SHARES
    if enforce_memory_qos and memory_reservation_policy == TIERED_RESERVATION:
        config.unified = _memory_protection(pod, requests)
    return config


def _memory_protection(pod: v1.Pod, requests: dict[str, Quantity]) -> dict[str, str]:
    """Return the settings that protect the memory that the pod requests.

    The kernel never reclaims the requested memory of a guaranteed pod. It reclaims that of other pods only when no
    unprotected memory is left.
    """
    if not _is_set(requests, v1.RESOURCE_MEMORY):
        return {}
    file = MEMORY_MIN if v1qos.get_pod_qos(pod) == v1.POD_QOS_GUARANTEED else MEMORY_LOW
    return {file: str(requests[v1.RESOURCE_MEMORY].value())}


def _milli(amounts: dict[str, Quantity], name: str) -> int:
    return amounts[name].milli_value() if name in amounts else 0


def _all_limited(pod: v1.Pod, limits: dict[str, Quantity], name: str) -> bool:
    """Report whether the limits bound the pod as a whole.

    A limit of the pod does. The sum of the containers' limits does only if each container has a limit.
    """
    own = pod.spec.resources
    if own is not None and _pod_level_resources_enabled() and _is_set(own.limits, name):
        return True
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    return _is_set(limits, name) and all(_is_set(container.resources.limits, name) for container in containers)


def _pod_level_resources_enabled() -> bool:
    return features.feature_gate.enabled(features.POD_LEVEL_RESOURCES)


def _is_set(amounts: dict[str, Quantity], name: str) -> bool:
    """Report whether there is an amount; 0 means that there is none."""
    return name in amounts and not amounts[name].is_zero()


def hard_eviction_reservation(
    thresholds: list[evictionapi.Threshold], capacity: dict[str, Quantity]
) -> dict[str, Quantity]:
    """Return what pods cannot use because the kubelet would evict them first, by resource name.

    Go: helpers.go
    """
    resources = {
        evictionapi.Signal.MEMORY_AVAILABLE: v1.RESOURCE_MEMORY,
        evictionapi.Signal.NODE_FS_AVAILABLE: v1.RESOURCE_EPHEMERAL_STORAGE,
    }
    reserved = {}
    for threshold in thresholds:
        name = resources.get(threshold.signal)
        if name is not None:
            reserved[name] = evictionapi.get_threshold_quantity(threshold.value, capacity.get(name, _ZERO))
    return reserved


def build_container_map_and_running_set_from_runtime(
    ctx: golang.Context, runtime_service: internalapi.RuntimeService
) -> tuple[containermap.ContainerMap, set[str]]:
    """Return the runtime's containers by ID, and the IDs of those that run. Both are empty if the runtime fails."""
    from cri_api.v1 import api_pb2 as runtimeapi

    found, running = containermap.ContainerMap(), set[str]()
    try:
        pods = {sandbox.id: sandbox.metadata.uid for sandbox in runtime_service.list_pod_sandbox(ctx, None)}
        containers = runtime_service.list_containers(ctx, None)
    except Exception as err:
        # Only the container IDs are unknown then: the managers find the containers by pod and name.
        klog.error_s(err, "Failed to list the containers of the runtime")
        return found, running
    for container in containers:
        ref = {"podSandboxId": container.pod_sandbox_id, "containerName": container.metadata.name}
        pod_uid = pods.get(container.pod_sandbox_id)
        if pod_uid is None:
            klog.info_s("No PodSandBox found for the container", **ref, containerId=container.id)
            continue
        found.add(pod_uid, container.metadata.name, container.id)
        if container.state == runtimeapi.CONTAINER_RUNNING:
            klog.v(4).info_s("Container reported running", **ref, podUID=pod_uid, containerId=container.id)
            running.add(container.id)
    return found, running


def node_allocatable_root(cgroup_root: str, cgroups_per_qos: bool, cgroup_driver: str) -> str:
    """Return the path of the cgroup above all pods."""
    parts = [part for part in cgroup_root.split("/") if part]
    if cgroups_per_qos:
        parts.append("kubepods")
    return to_systemd(CgroupName(tuple(parts))) if cgroup_driver == SYSTEMD and parts else "/" + "/".join(parts)


def get_kubelet_container(kubelet_cgroups: str, root: str = CGROUP_ROOT, proc: str = "/proc") -> str:
    """Return the cgroup that accounts for the kubelet's usage: the configured one, or else the one that it runs in.

    Raise LookupError if the kubelet is in several cgroups, or OSError.
    """
    return kubelet_cgroups or get_container(root, proc)


def get_container(root: str = CGROUP_ROOT, proc: str = "/proc", pid: int | None = None) -> str:
    """Return the cgroup of a process; without `pid`, of this process.

    In version 1 the result is the cgroup in systemd's hierarchy, if there is one. If systemd does not account for the
    service's CPU and memory, its statistics will be missing. Raise LookupError if the process is in several cgroups, or
    OSError.
    """
    process = "self" if pid is None else str(pid)
    groups: dict[str, str] = {}
    for line in procfs.lines(Path(proc, process, "cgroup")):
        _id, controllers, name = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), name))
    if is_cgroup2_unified_mode(root):
        return groups[""]
    for controller in ("cpu", "memory"):
        if controller not in groups:
            raise LookupError(f"mountpoint for {controller} not found")
    cpu, memory = groups["cpu"], groups["memory"]
    if cpu != memory:
        raise LookupError(f"cpu and memory cgroup hierarchy not unified.  cpu: {cpu}, memory: {memory}")
    systemd = groups.get("name=systemd", cpu)
    if systemd != cpu:
        klog.info_s("CPUAccounting not enabled for process", pid=process)
        klog.info_s("MemoryAccounting not enabled for process", pid=process)
    return systemd
