"""What the kubelet asks of the node's resources.

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
# Its root has had this file since Linux 5.8.
CGROUP_V2_KERNEL_WARNING = (
    "cgroup v2 is being used on a kernel, which doesn't support root `cpu.stat`."
    "Kubelet will continue, but may experience instability or wrong behavior"
)

ActivePodsFunc = Callable[[], list[v1.Pod]]
GetNodeFunc = Callable[[golang.Context], v1.Node]


class ClaimsUnsupportedError(ValueError):
    """A pod has resource claims, and this node nobody who prepares them."""

    def __init__(self) -> None:
        super().__init__("resource claims are not supported by this node")


@dataclass(slots=True)
class NodeConfig:
    """How the node's cgroups are to be laid out, and how its resources are given out."""

    node_name: str = ""
    # Cgroups of the runtime, of other daemons, and of the kubelet itself; "" when nobody named them.
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
    # Cores that no pod gets for itself; None when nobody named them.
    reserved_system_cpus: cpuset.CPUSet | None = None
    enforce_node_allocatable: frozenset[str] = frozenset()
    kube_reserved: dict[str, Quantity] = field(default_factory=dict)
    system_reserved: dict[str, Quantity] = field(default_factory=dict)
    # What is kept free by evicting pods is kept from them in the first place.
    hard_eviction_thresholds: list[evictionapi.Threshold] = field(default_factory=list)
    # Percent of what pods of a QoS class ask for that is kept from lower classes, by resource.
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
    # The kubelet's socket for device plugins, and theirs, are there, and what containers were given.
    device_plugin_directory: str = deviceplugin.DEVICE_PLUGIN_PATH
    # Whether pods wait for device plugins that have gone, or are not back yet after a restart.
    await_device_plugins: bool = False
    # 0 until the container manager is made.
    cgroup_version: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """How the container manager is."""

    # What was asked for and could not be done, although the node works without.
    soft_requirements: Exception | None = None


class DevicePluginResourceCapacity(NamedTuple):
    """What device plugins offer: capacity, what of it is healthy, and resources that are gone for good."""

    capacity: dict[str, Quantity]
    allocatable: dict[str, Quantity]
    removed: list[str]


class ContainerManager(Protocol):
    """What the kubelet needs of the node's resources. Safe to call from any thread."""

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
        """Lay out the node's cgroups and start the managers; threads end with ctx.

        A pod keeps what it was given as long as it is active, or its containers could run.

        Raises OSError when the kernel refuses, ValueError for a configuration that the node cannot have.
        """
        ...

    def system_cgroups_limit(self) -> dict[str, Quantity]: ...

    def get_node_config(self) -> NodeConfig: ...

    def status(self) -> Status: ...

    def new_pod_container_manager(self) -> PodContainerManager: ...

    def get_qos_containers_info(self) -> QOSContainersInfo: ...

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        """What of the capacity is kept from pods."""
        ...

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        """What the node has of what this manager counts; of storage only if that is asked for."""
        ...

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity: ...

    def update_qos_cgroups(self) -> None: ...

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        """Devices, variables and mounts of the container's resources, as a new object."""
        ...

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        """Raise the node's allocatable to what the pod was already given of plugins' resources. Raises what refuses."""
        ...

    def internal_container_lifecycle(self) -> InternalContainerLifecycle: ...

    def get_pod_cgroup_root(self) -> str: ...

    def get_plugin_registration_handlers(self) -> Mapping[str, cache.PluginHandler]:
        """Who takes plugins, by their type."""
        ...

    def get_health_checkers(self) -> list[healthz.HealthChecker]: ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Whether the node was made anew, so that no device of old can still be there."""
        ...

    def get_allocate_resources_pod_admit_handler(self) -> lifecycle.PodAdmitHandler:
        """Gives a pod that comes in its devices, cores and memory, or refuses it."""
        ...

    def get_node_allocatable_absolute(self) -> dict[str, Quantity]:
        """What pods can have, before anything is kept free by eviction."""
        ...

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have drivers prepare what the pod claims. Raises what keeps it from running."""
        ...

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None: ...

    def pod_might_need_to_unprepare_resources(self, uid: types.UID) -> bool: ...

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        """Write the health of what the pod's containers were given into the status."""
        ...

    def updates(self) -> golang.Channel[Update]:
        """Where changes of resources that running pods hold are announced."""
        ...

    def pod_has_exclusive_cpus(self, pod: v1.Pod) -> bool: ...

    def container_has_exclusive_cpus(self, pod: v1.Pod, container: v1.Container) -> bool: ...

    # The providers of the pod resources API.

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
    """Whether one of the pod's containers has cores of its own."""
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    if any(container_has_exclusive_cpus(reader, pod, container) for container in containers):
        return True
    klog.v(4).info_s("Pod contains no container with pinned cpus", podName=pod.metadata.name)
    return False


def container_has_exclusive_cpus(reader: CPUAllocationReader, pod: v1.Pod, container: v1.Container) -> bool:
    """Whether the container has cores of its own."""
    if reader.get_exclusive_cpus(pod.metadata.uid, container.name).is_empty():
        return False
    klog.v(4).info_s("Container has pinned cpus", podName=pod.metadata.name, containerName=container.name)
    return True


def parse_qos_reserved(values: Mapping[str, str]) -> dict[str, int]:
    """Percentages by resource name. Raises ValueError that names the resource."""
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
