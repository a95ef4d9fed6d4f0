"""Define what the kubelet needs from the manager of the node's resources.

Go: pkg/kubelet/cm/container_manager.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubelet import container as kubecontainer
from kubelet import lifecycle
from kubelet.apis.deviceplugin import v1beta1 as deviceplugin
from kubelet.cm.pod_container_manager import PodContainerManager
from kubelet.cm.resourceupdates import Update
from kubelet.cm.types import QOSContainersInfo
from kubelet.eviction import api as evictionapi
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.apiserver.server import healthz

if TYPE_CHECKING:
    from kubelet import config, status
    from kubelet.apis import config as kubeletconfig
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
    from kubelet.cm.containermap import CouldRunFunc
    from kubelet.cm.internal_container_lifecycle import InternalContainerLifecycle
    from kubelet.cri import apis as internalapi
    from kubelet.pluginmanager import cache
    from pkg.scheduler import framework
    from pkg.utils import cpuset

DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME = "kubepods"
CGROUP_V1_DEPRECATED_WARNING = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to "
    "cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)
# The root cgroup has the file `cpu.stat` since Linux 5.8.
CGROUP_V2_KERNEL_WARNING = (
    "cgroup v2 is being used on a kernel, which doesn't support root `cpu.stat`."
    "Kubelet will continue, but may experience instability or wrong behavior"
)

ActivePodsFunc = Callable[[], list[v1.Pod]]
GetNodeFunc = Callable[[golang.Context], v1.Node]


class ClaimsUnsupportedError(ValueError):
    """Signal that a pod has resource claims, and that this kubelet cannot prepare them."""

    def __init__(self) -> None:
        super().__init__("resource claims are not supported by this node")


@dataclass(slots=True)
class NodeConfig:
    """Describe how to lay out the node's cgroups, and how to allocate its resources."""

    node_name: str = ""
    # The next three fields name the cgroups of the runtime, of other daemons, and of the kubelet; "" means that the
    # configuration names none.
    runtime_cgroups_name: str = ""
    system_cgroups_name: str = ""
    kubelet_cgroups_name: str = ""
    kubelet_oom_score_adj: int = -999
    cgroups_per_qos: bool = True
    cgroup_root: str = "/"
    cgroup_driver: str = "cgroupfs"
    kubelet_root_dir: str = "/var/lib/kubelet"
    protect_kernel_defaults: bool = False
    kube_reserved_cgroup_name: str = ""
    system_reserved_cgroup_name: str = ""
    # No pod gets these cores exclusively. None means that the configuration names no cores.
    reserved_system_cpus: cpuset.CPUSet | None = None
    enforce_node_allocatable: frozenset[str] = frozenset()
    kube_reserved: dict[str, Quantity] = field(default_factory=dict)
    system_reserved: dict[str, Quantity] = field(default_factory=dict)
    # The node's allocatable resources exclude what these thresholds keep free.
    hard_eviction_thresholds: list[evictionapi.Threshold] = field(default_factory=list)
    # `qos_reserved` maps a resource to the percentage of a QoS class's requests that pods of lower classes must not
    # use.
    qos_reserved: dict[str, int] = field(default_factory=dict)
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict)
    cpu_manager_reconcile_period: float = 10.0  # seconds
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: dict[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    memory_manager_reserved_memory: list[kubeletconfig.MemoryReservation] = field(default_factory=list)
    memory_reservation_policy: str = "None"
    pod_pids_limit: int = -1
    enforce_cpu_limits: bool = True
    cpu_cfs_quota_period: float = 0.1  # seconds
    # This directory holds the kubelet's socket for device plugins, the plugins' sockets, and the device manager's
    # checkpoint.
    device_plugin_directory: str = deviceplugin.DEVICE_PLUGIN_PATH
    # This field says whether pods wait for device plugins that are gone, or that have not returned after a restart.
    await_device_plugins: bool = False
    # The version is 0 until the container manager exists.
    cgroup_version: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """Describe the state of the container manager."""

    # This error names a requirement that the host does not meet, although the node works without it.
    soft_requirements: Exception | None = None


class DevicePluginResourceCapacity(NamedTuple):
    """Hold the capacity of the device plugins, its healthy part, and the resources that are permanently gone."""

    capacity: dict[str, Quantity]
    allocatable: dict[str, Quantity]
    removed: list[str]


class ContainerManager(Protocol):
    """Define what the kubelet needs from the manager of the node's resources. All methods are thread-safe."""

    def start(
        self,
        ctx: golang.Context,
        node: v1.Node,
        active_pods: ActivePodsFunc,
        could_run: CouldRunFunc,
        get_node: GetNodeFunc,
        sources_ready: config.SourcesReady,
        pod_status_provider: status.PodStatusProvider,
        runtime_service: internalapi.RuntimeService,
        local_storage_capacity_isolation: bool,
    ) -> None:
        """Lay out the node's cgroups and start the managers, whose threads end with `ctx`.

        A pod keeps its resources while it is active, or while its containers could still run.

        Raise OSError when the kernel refuses, and ValueError for a configuration that this node cannot support.
        """
        ...

    def system_cgroups_limit(self) -> dict[str, Quantity]: ...

    def get_node_config(self) -> NodeConfig: ...

    def status(self) -> Status: ...

    def new_pod_container_manager(self) -> PodContainerManager: ...

    def get_qos_containers_info(self) -> QOSContainersInfo: ...

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        """Return the part of the capacity that is reserved and that pods cannot get."""
        ...

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        """Return the node's capacity of the resources that this manager counts; include storage only on request."""
        ...

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity: ...

    def update_qos_cgroups(self) -> None: ...

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        """Return a new object with the devices, variables and mounts that the container's resources need."""
        ...

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        """Raise the node's allocatable to the plugin resources that the pod already has.

        Raise the error for which the pod must be rejected.
        """
        ...

    def internal_container_lifecycle(self) -> InternalContainerLifecycle: ...

    def get_pod_cgroup_root(self) -> str: ...

    def get_plugin_registration_handlers(self) -> Mapping[str, cache.PluginHandler]:
        """Return the handlers that register plugins, by type of plugin."""
        ...

    def get_health_checkers(self) -> list[healthz.HealthChecker]: ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Report whether the node was recreated, so that no earlier device can still exist."""
        ...

    def get_allocate_resources_pod_admit_handler(self) -> lifecycle.PodAdmitHandler:
        """Return the handler that allocates devices, cores and memory to a new pod, or rejects the pod."""
        ...

    def get_node_allocatable_absolute(self) -> dict[str, Quantity]:
        """Return what pods can have before the eviction thresholds are subtracted."""
        ...

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have the drivers prepare the pod's resource claims. Raise an error if the pod cannot run."""
        ...

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None: ...

    def pod_might_need_to_unprepare_resources(self, uid: types.UID) -> bool: ...

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        """Write the health of the containers' allocated resources into the pod's status."""
        ...

    def updates(self) -> golang.Channel[Update]:
        """Return the channel that announces changes in the resources of running pods."""
        ...

    def pod_has_exclusive_cpus(self, pod: v1.Pod) -> bool: ...

    def container_has_exclusive_cpus(self, pod: v1.Pod, container: v1.Container) -> bool: ...

    # The methods below provide the data of the pod resources API.

    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]: ...

    def get_allocatable_cpus(self) -> Sequence[int]: ...

    def update_allocated_devices(self) -> None: ...

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]: ...

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]: ...

    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]: ...

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]: ...

    def get_dynamic_resources(
        self, pod: v1.Pod, container: v1.Container
    ) -> Sequence[podresourcesapi.DynamicResource]: ...


class CPUAllocationReader(Protocol):
    def get_exclusive_cpus(self, pod_uid: str, container_name: str) -> cpuset.CPUSet: ...


def pod_has_exclusive_cpus(reader: CPUAllocationReader, pod: v1.Pod) -> bool:
    """Report whether one of the pod's containers has exclusive cores."""
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    if any(container_has_exclusive_cpus(reader, pod, container) for container in containers):
        return True
    klog.v(4).info_s("Pod contains no container with pinned cpus", podName=pod.metadata.name)
    return False


def container_has_exclusive_cpus(reader: CPUAllocationReader, pod: v1.Pod, container: v1.Container) -> bool:
    """Report whether the container has exclusive cores."""
    if reader.get_exclusive_cpus(pod.metadata.uid, container.name).is_empty():
        return False
    klog.v(4).info_s("Container has pinned cpus", podName=pod.metadata.name, containerName=container.name)
    return True


def parse_qos_reserved(values: Mapping[str, str]) -> dict[str, int]:
    """Return percentages by resource name. Raise ValueError, which names the resource."""
    reservations = {}
    for name, text in values.items():
        if name != v1.RESOURCE_MEMORY:
            raise ValueError(f'cannot reserve "{name}" resource')
        try:
            reservations[name] = _parse_percentage(text)
        except ValueError as err:
            raise ValueError(f'failed to parse percentage "{text}" for "{name}" resource: {err}') from err
    return reservations


def _parse_percentage(text: str) -> int:
    if not text.endswith("%"):
        raise ValueError(f"percentage expected, got '{text}'")
    try:
        percentage = int(text.rstrip("%"))
    except ValueError:
        raise ValueError(f"invalid number in percentage '{text}'") from None
    if not 0 <= percentage <= 100:
        raise ValueError("percentage must be between 0 and 100")
    return percentage
