"""Compute the cgroup settings of a container: CPU, memory, huge pages, swap and OOM.

Go: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cm, qos
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.kuberuntime import helpers, helpers_linux
from kubelet.kuberuntime.security_context import SecurityContextMethods
from pkg import features, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apis.core.v1 import helper as v1helper
from pkg.apis.core.v1.helper import qos as kubeapiqos
from pkg.component_helpers import resource as resourcehelper
from pkg.util import procfs

if TYPE_CHECKING:
    from kubelet import cadvisor as cadvisorapi

ZERO = resource.new_quantity(0)

_CGROUP2_MEMORY_MIN = "memory.min"
_CGROUP2_MEMORY_LOW = "memory.low"
_CGROUP2_MEMORY_HIGH = "memory.high"
_CGROUP2_MAX_SWAP_FILENAME = "memory.swap.max"
_TIERED_RESERVATION = "TieredReservation"
_MICROSECONDS = 1_000_000
_HUGE_PAGES_DIR = "/sys/kernel/mm/hugepages"


@dataclass(kw_only=True, eq=False, repr=False)
class ContainerLinuxMethods(SecurityContextMethods):
    """Compute what the runtime writes into a container's cgroup."""

    container_manager: cm.ContainerManager
    machine_info: cadvisorapi.MachineInfo
    get_node_allocatable: Callable[[], Mapping[str, resource.Quantity]]
    cpu_cfs_quota: bool
    # The unit is seconds.
    cpu_cfs_quota_period: float
    memory_throttling_factor: float
    memory_reservation_policy: str
    memory_swap_behavior: str
    # This function reports whether the kernel can limit swap.
    get_swap_controller_available: Callable[[], bool]
    # False makes the kernel kill all processes of a container together. True and None make it kill single processes.
    single_process_oom_kill: bool | None

    def apply_platform_specific_container_config(
        self,
        config: runtimeapi.ContainerConfig,
        container: v1.Container,
        pod: v1.Pod,
        uid: int | None,
        username: str,
        ns_target: kubecontainer.ContainerID | None,
    ) -> None:
        """Set config.linux and the ID mappings of the mounts.

        Raise ValueError for settings that the runtime does not support.
        """
        linux = self.generate_linux_container_config(container, pod, uid, username, ns_target, _enforce_memory_qos())
        config.linux.CopyFrom(linux)
        userns = linux.security_context.namespace_options.userns_options
        for mount in config.mounts:
            mount.uidMappings.extend(userns.uids)
            mount.gidMappings.extend(userns.gids)

    def generate_linux_container_config(
        self,
        container: v1.Container,
        pod: v1.Pod,
        uid: int | None,
        username: str,
        ns_target: kubecontainer.ContainerID | None,
        enforce_memory_qos: bool,
    ) -> runtimeapi.LinuxContainerConfig:
        """Return the Linux part of the configuration.

        ns_target is the container whose processes an ephemeral container must see, or None.
        """
        sc = self.determine_effective_security_context(pod, container, uid, username)
        if ns_target is not None and sc.namespace_options.pid == runtimeapi.CONTAINER:
            sc.namespace_options.pid = runtimeapi.TARGET
            sc.namespace_options.target_id = ns_target.id
        resources = self.generate_linux_container_resources(pod, container, enforce_memory_qos)
        return runtimeapi.LinuxContainerConfig(resources=resources, security_context=sc)

    def generate_linux_container_resources(
        self, pod: v1.Pod, container: v1.Container, enforce_memory_qos: bool
    ) -> runtimeapi.LinuxContainerResources:
        """Return all settings of the container's cgroup."""
        lcr = self.calculate_linux_resources(
            container.resources.requests.get(v1.RESOURCE_CPU),
            _limit(pod, container, v1.RESOURCE_CPU),
            _limit(pod, container, v1.RESOURCE_MEMORY),
            disable_cpu_quota=unlimits_exclusive_cpus()
            and self.container_manager.container_has_exclusive_cpus(pod, container),
        )
        lcr.oom_score_adj = qos.get_container_oom_score_adjust(pod, container, self.machine_info.memory_capacity)
        lcr.hugepage_limits.extend(get_hugepage_limits_from_resources(pod, container.resources))
        self._configure_container_swap_resources(lcr, pod, container)
        if enforce_memory_qos:
            unified = self._memory_qos(pod, container)
            lcr.unified.update(unified)
            klog.v(4).info_s(
                "MemoryQoS config for container",
                pod=klog.kobj(pod),
                containerName=container.name,
                unified=unified,
            )
        return lcr

    def _memory_qos(self, pod: v1.Pod, container: v1.Container) -> dict[str, str]:
        """Return memory.min, memory.low and memory.high in bytes, according to the MemoryQoS feature."""
        request = container.resources.requests.get(v1.RESOURCE_MEMORY, ZERO).value()
        limit = container.resources.limits.get(v1.RESOURCE_MEMORY, ZERO).value()
        if request and self.memory_reservation_policy == _TIERED_RESERVATION:
            guaranteed = kubeapiqos.get_pod_qos(pod) == v1.POD_QOS_GUARANTEED
            unified = {_CGROUP2_MEMORY_MIN if guaranteed else _CGROUP2_MEMORY_LOW: str(request)}
        else:
            unified = {_CGROUP2_MEMORY_MIN: "0", _CGROUP2_MEMORY_LOW: "0"}
        if request == limit:
            return unified
        ceiling = limit or self.get_node_allocatable().get(v1.RESOURCE_MEMORY, ZERO).value()
        if ceiling > 0:
            page = os.sysconf("SC_PAGESIZE")
            high = int((request + (ceiling - request) * self.memory_throttling_factor) // page) * page
            if high > request:
                unified[_CGROUP2_MEMORY_HIGH] = str(high)
        return unified

    def _configure_container_swap_resources(
        self, lcr: runtimeapi.LinuxContainerResources, pod: v1.Pod, container: v1.Container
    ) -> None:
        if not self.get_swap_controller_available():
            return
        if not cm.is_cgroup2_unified_mode():
            # This limit covers memory and swap together, so the memory limit itself means "no swap".
            lcr.memory_swap_limit_in_bytes = lcr.memory_limit_in_bytes
            return
        swap = 0
        if self.get_container_swap_behavior(pod, container) == kubetypes.LIMITED_SWAP:
            swap = self._limited_swap(container)
        lcr.unified[_CGROUP2_MAX_SWAP_FILENAME] = str(swap)

    def _limited_swap(self, container: v1.Container) -> int:
        request = container.resources.requests.get(v1.RESOURCE_MEMORY, ZERO).value()
        try:
            return calc_swap_for_burstable_pods(
                request, self.machine_info.memory_capacity, self.machine_info.swap_capacity
            )
        except ValueError as err:
            klog.error_s(err, "Cannot calculate swap allocation amount; disallowing swap")
            return 0

    def get_container_swap_behavior(self, pod: v1.Pod, container: v1.Container) -> kubetypes.SwapBehavior:
        """Return LIMITED_SWAP or NO_SWAP.

        Only containers of burstable pods that request less memory than their limit get LIMITED_SWAP.
        """
        if self.memory_swap_behavior != kubetypes.LIMITED_SWAP:
            return kubetypes.NO_SWAP
        if not features.feature_gate.enabled(features.NODE_SWAP) or not self.get_swap_controller_available():
            return kubetypes.NO_SWAP
        if not cm.is_cgroup2_unified_mode() or kubetypes.is_critical_pod(pod):
            return kubetypes.NO_SWAP
        request = container.resources.requests.get(v1.RESOURCE_MEMORY, ZERO)
        limit = container.resources.limits.get(v1.RESOURCE_MEMORY, ZERO)
        # Both are zero, and thus equal, if the container sets no memory at all.
        if kubeapiqos.get_pod_qos(pod) != v1.POD_QOS_BURSTABLE or request.cmp(limit) == 0:
            return kubetypes.NO_SWAP
        return kubetypes.LIMITED_SWAP

    def generate_container_resources(self, pod: v1.Pod, container: v1.Container) -> runtimeapi.ContainerResources:
        """Return the container's resources for the runtime.

        Go: generateContainerResources
        """
        return runtimeapi.ContainerResources(
            linux=self.generate_linux_container_resources(pod, container, _enforce_memory_qos())
        )

    def generate_update_pod_sandbox_resources_request(
        self, sandbox_id: str, pod: v1.Pod, pod_resources: cm.ResourceConfig
    ) -> runtimeapi.UpdatePodSandboxResourcesRequest:
        """Return the request that announces a change of the pod's cgroup: the containers' share and the overhead."""
        for_containers = helpers_linux.subtract_overhead_from_resource_config(pod_resources, pod)
        return runtimeapi.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=sandbox_id,
            overhead=self.convert_overhead_to_linux_resources(pod),
            resources=helpers.convert_resource_config_to_linux_container_resources(for_containers),
        )

    def convert_overhead_to_linux_resources(self, pod: v1.Pod) -> runtimeapi.LinuxContainerResources:
        """Convert the pod's overhead, which serves as both request and limit."""
        if not pod.spec.overhead:
            return runtimeapi.LinuxContainerResources()
        cpu = pod.spec.overhead.get(v1.RESOURCE_CPU, ZERO)
        memory = pod.spec.overhead.get(v1.RESOURCE_MEMORY, ZERO)
        return self.calculate_linux_resources(cpu, cpu, memory)

    def calculate_linux_resources(
        self,
        cpu_request: resource.Quantity | None,
        cpu_limit: resource.Quantity,
        memory_limit: resource.Quantity,
        disable_cpu_quota: bool = False,
    ) -> runtimeapi.LinuxContainerResources:
        """Return the CPU shares, the CPU quota and the memory limit; a CPU request of None defaults to the limit."""
        cpu = cpu_request if cpu_request is not None else cpu_limit
        resources = runtimeapi.LinuxContainerResources(
            cpu_shares=cm.milli_cpu_to_shares(cpu.milli_value()),
            memory_limit_in_bytes=memory_limit.value(),
        )
        if self.cpu_cfs_quota:
            period = cm.QUOTA_PERIOD
            if features.feature_gate.enabled(features.CPU_CFS_QUOTA_PERIOD):
                period = round(self.cpu_cfs_quota_period * _MICROSECONDS)
            quota = cm.milli_cpu_to_quota(cpu_limit.milli_value(), period)
            resources.cpu_quota = -1 if disable_cpu_quota else quota
            resources.cpu_period = period
        if self.single_process_oom_kill is False and cm.is_cgroup2_unified_mode():
            # When memory runs out, the kernel kills all processes of the container together.
            resources.unified["memory.oom.group"] = "1"
        return resources


def unlimits_exclusive_cpus() -> bool:
    """Report whether containers with exclusive CPUs have no CPU quota, which could only slow them down."""
    return features.feature_gate.enabled(features.DISABLE_CPU_QUOTA_WITH_EXCLUSIVE_CPUS)


def _enforce_memory_qos() -> bool:
    return features.feature_gate.enabled(features.MEMORY_QOS) and cm.is_cgroup2_unified_mode()


def _limit(pod: v1.Pod, container: v1.Container, name: str) -> resource.Quantity:
    """Return the container's limit, or the pod's if only the pod sets one.

    Go: getCPULimit, getMemoryLimit
    """
    limit = container.resources.limits.get(name, ZERO)
    if limit.is_zero() and _pod_level_resources_set(pod) and pod.spec.resources is not None:
        return pod.spec.resources.limits.get(name, ZERO)
    return limit


def _pod_level_resources_set(pod: v1.Pod) -> bool:
    return features.feature_gate.enabled(features.POD_LEVEL_RESOURCES) and resourcehelper.is_pod_level_resources_set(
        pod
    )


def get_hugepage_limits_from_resources(
    pod: v1.Pod, container_resources: v1.ResourceRequirements
) -> list[runtimeapi.HugepageLimit]:
    """Return a limit for each page size of the node; it is 0 unless the container or the pod sets one."""
    required: dict[str, int] = {}
    if _pod_level_resources_set(pod) and pod.spec.resources is not None:
        required |= _hugepage_limits(pod.spec.resources.limits)
    required |= _hugepage_limits(container_resources.limits)
    return [runtimeapi.HugepageLimit(page_size=size, limit=required.get(size, 0)) for size in huge_page_sizes()]


def _hugepage_limits(limits: Mapping[str, resource.Quantity]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in limits.items():
        if not v1helper.is_huge_page_resource_name(name):
            continue
        try:
            size = v1helper.huge_page_size_from_resource_name(name)
            found[v1helper.huge_page_unit_size_from_byte_size(size.value())] = amount.value()
        except ValueError as err:
            klog.info_s("Failed to get hugepage size from resource", object=name, err=err)
    return found


def huge_page_sizes() -> list[str]:
    """Return the page sizes of the node, such as "2MB" and "1GB", in the kernel's order."""
    try:
        names = os.listdir(_HUGE_PAGES_DIR)
    except FileNotFoundError:
        return []
    sizes = [int(m[1]) * 1024 for name in names if (m := re.fullmatch(r"hugepages-(\d+)kB", name))]
    return [v1helper.huge_page_unit_size_from_byte_size(size) for size in sizes]


def to_kube_container_resources(
    status_resources: runtimeapi.ContainerResources,
) -> kubecontainer.ContainerResources | None:
    """Return the resources that the runtime reports, or None if it reports nothing useful."""
    linux = status_resources.linux
    result = kubecontainer.ContainerResources()
    if linux.cpu_period > 0:
        milli_cpu = cm.quota_to_milli_cpu(linux.cpu_quota, linux.cpu_period)
        if milli_cpu > 0:
            result.cpu_limit = resource.new_milli_quantity(milli_cpu)
    milli_cpu = cm.shares_to_milli_cpu(linux.cpu_shares)
    if milli_cpu > 0:
        result.cpu_request = resource.new_milli_quantity(milli_cpu)
    if linux.memory_limit_in_bytes > 0:
        result.memory_limit = resource.new_quantity(linux.memory_limit_in_bytes, resource.Format.BINARY_SI)
    return None if result == kubecontainer.ContainerResources() else result


def check_swap_controller_availability() -> bool:
    """Report whether the kernel can limit the swap of a cgroup."""
    path = "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"
    try:
        if cm.is_cgroup2_unified_mode():
            # The root cgroup has no such file, so the function checks the cgroup of this process.
            own = procfs.read("/proc/self/cgroup").split("\n", 1)[0].split(":", 2)[2]
            path = os.path.join("/sys/fs/cgroup", own.lstrip("/"), _CGROUP2_MAX_SWAP_FILENAME)
        os.stat(path)
    except FileNotFoundError:
        return False
    except (OSError, IndexError) as err:
        klog.v(5).info_s("Failed to detect the availability of the swap controller, assuming not available", err=err)
        return False
    return True


def calc_swap_for_burstable_pods(
    container_memory_request: int, node_total_memory: int, total_pods_swap_available: int
) -> int:
    """Return the container's share of the node's swap, in bytes.

    The share of the swap equals the share that the container's request has of the node's memory.

    Raise ValueError if the request exceeds the node's memory, or if that is 0.
    """
    if node_total_memory <= 0:
        raise ValueError("total node memory is 0")
    if container_memory_request > node_total_memory:
        raise ValueError(
            f"container request {container_memory_request} is larger than total node memory {node_total_memory}"
        )
    return int(container_memory_request / node_total_memory * total_pods_swap_available)


def to_kube_container_user(status_user: runtimeapi.ContainerUser) -> kubecontainer.ContainerUser:
    """Convert the user of the container's first process."""
    linux = None
    if status_user.HasField("linux"):
        linux = kubecontainer.LinuxContainerUser(
            uid=status_user.linux.uid,
            gid=status_user.linux.gid,
            supplemental_groups=list(status_user.linux.supplemental_groups),
        )
    return kubecontainer.ContainerUser(linux=linux)
