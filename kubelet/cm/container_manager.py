"""What the kubelet asks of the node's resources, and the manager of a Linux node.

Go: pkg/kubelet/cm/container_manager.go, container_manager_linux.go, internal_container_lifecycle_linux.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubelet import cadvisor
from kubelet import container as kubecontainer
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.helpers import hard_eviction_reservation
from kubelet.cm.pod_container_manager import (
    PodContainerManager,
    PodContainerManagerImpl,
    PodContainerManagerNoop,
)
from kubelet.cm.qos_container_manager import QOSContainerManager
from kubelet.cm.types import CgroupName, QOSContainersInfo, cgroup_name
from kubelet.eviction import api as evictionapi
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi

DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME = "kubepods"
CGROUP_V1_DEPRECATED_WARNING = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to "
    "cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)


@dataclass(slots=True)
class NodeConfig:
    """How the node's cgroups are to be laid out."""

    node_name: str = ""
    cgroups_per_qos: bool = True
    cgroup_root: str = "/"
    cgroup_driver: str = "cgroupfs"
    pod_pids_limit: int = -1
    enforce_cpu_limits: bool = True
    cpu_cfs_quota_period: float = 0.1  # seconds
    cpu_manager_policy: str = "none"
    memory_manager_policy: str = "None"
    # Cgroups of the runtime, of other daemons, and of the kubelet itself; "" when nobody named them.
    runtime_cgroups_name: str = ""
    system_cgroups_name: str = ""
    kubelet_cgroups_name: str = ""
    kube_reserved: dict[str, Quantity] = field(default_factory=dict)
    system_reserved: dict[str, Quantity] = field(default_factory=dict)
    # What is kept free by evicting pods is kept from them in the first place.
    hard_eviction_thresholds: list[evictionapi.Threshold] = field(default_factory=list)


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


@dataclass(slots=True)
class ResourceUpdates:
    """Pods whose resources changed by themselves, a device's health for example."""

    pod_uids: list[str] = field(default_factory=list)


class InternalContainerLifecycle:
    """Where the resource managers take part in a container's life. None of them is there yet."""

    def pre_create_container(self, pod: v1.Pod, container: v1.Container, config: runtimeapi.ContainerConfig) -> None:
        return None

    def pre_start_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        return None

    def post_stop_container(self, container_id: str) -> None:
        return None


class ContainerManager(Protocol):
    """What the kubelet needs of the node's resources. Safe to call from any thread."""

    def start(self, node: v1.Node, active_pods: Callable[[], list[v1.Pod]]) -> None:
        """Lay out the node's cgroups. Raises OSError when the kernel refuses."""
        ...

    def get_node_config(self) -> NodeConfig: ...

    def new_pod_container_manager(self) -> PodContainerManager: ...

    def get_qos_containers_info(self) -> QOSContainersInfo: ...

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        """What of the capacity is kept from pods."""
        ...

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        """What the node has of what this manager counts; of storage only if that is asked for."""
        ...

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity: ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Whether the node was made anew, so that no device of old can still be there."""
        ...

    def status(self) -> Status: ...

    def update_qos_cgroups(self) -> None: ...

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        """Devices, variables and mounts of the container's resources, as a new object."""
        ...

    def internal_container_lifecycle(self) -> InternalContainerLifecycle: ...

    def get_pod_cgroup_root(self) -> str: ...

    def updates(self) -> golang.Channel[ResourceUpdates]:
        """Where changes of resources that running pods hold are announced."""
        ...


class ContainerManagerImpl:
    """The container manager of a Linux node."""

    def __init__(self, node_config: NodeConfig, cadvisor_interface: cadvisor.Interface | None = None) -> None:
        self._node_config = node_config
        self._cadvisor = cadvisor_interface or cadvisor.Cadvisor()
        self._cgroup_manager = new_cgroup_manager(node_config.cgroup_driver)
        root = CgroupName(tuple(part for part in node_config.cgroup_root.split("/") if part))
        if node_config.cgroups_per_qos:
            root = cgroup_name(root, DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME)
        self._cgroup_root = root
        self._qos_container_manager = QOSContainerManager(root, self._cgroup_manager)
        self._updates: golang.Channel[ResourceUpdates] = golang.Channel(1)

    def start(self, node: v1.Node, active_pods: Callable[[], list[v1.Pod]]) -> None:
        klog.v(2).info_s("Creating Container Manager object based on Node Config", nodeConfig=self._node_config)
        if self._node_config.cgroups_per_qos:
            self._qos_container_manager.start(active_pods)

    def get_node_config(self) -> NodeConfig:
        return self._node_config

    def new_pod_container_manager(self) -> PodContainerManager:
        config = self._node_config
        if not config.cgroups_per_qos:
            return PodContainerManagerNoop(self._cgroup_root)
        return PodContainerManagerImpl(
            qos_containers=self._qos_container_manager.get_qos_containers_info(),
            cgroup_manager=self._cgroup_manager,
            pod_pids_limit=config.pod_pids_limit,
            enforce_cpu_limits=config.enforce_cpu_limits,
            cpu_cfs_quota_period=round(config.cpu_cfs_quota_period * 1_000_000),
        )

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return self._qos_container_manager.get_qos_containers_info()

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        """Go: node_container_manager_linux.go"""
        config = self._node_config
        kept = hard_eviction_reservation(config.hard_eviction_thresholds, self.get_capacity(True))
        reserved = dict(config.kube_reserved)
        for name, quantity in [*config.system_reserved.items(), *kept.items()]:
            reserved[name] = reserved[name].add(quantity) if name in reserved else quantity
        return reserved

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        capacity = cadvisor.capacity_from_machine_info(self._cadvisor.machine_info())
        if local_storage_capacity_isolation:
            capacity |= cadvisor.ephemeral_storage_capacity_from_fs_info(self._cadvisor.root_fs_info())
        return capacity

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity:
        return DevicePluginResourceCapacity({}, {}, [])

    def should_reset_extended_resource_capacity(self) -> bool:
        return False

    def status(self) -> Status:
        return Status()

    def update_qos_cgroups(self) -> None:
        if self._node_config.cgroups_per_qos:
            self._qos_container_manager.update_cgroups()

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        return kubecontainer.RunContainerOptions()

    def internal_container_lifecycle(self) -> InternalContainerLifecycle:
        return InternalContainerLifecycle()

    def get_pod_cgroup_root(self) -> str:
        return self._cgroup_manager.name(self._cgroup_root)

    def updates(self) -> golang.Channel[ResourceUpdates]:
        return self._updates
