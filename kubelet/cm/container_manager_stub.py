"""A container manager that touches no cgroup: for hollow nodes and tests.

Go: pkg/kubelet/cm/container_manager_stub.go
"""

from __future__ import annotations

from collections.abc import Callable

from kubelet import cadvisor
from kubelet import container as kubecontainer
from kubelet.cm.container_manager import (
    DevicePluginResourceCapacity,
    InternalContainerLifecycle,
    NodeConfig,
    ResourceUpdates,
    Status,
)
from kubelet.cm.pod_container_manager import PodContainerManager, PodContainerManagerNoop
from kubelet.cm.types import CgroupName, QOSContainersInfo
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity


class ContainerManagerStub:
    """Says yes to everything and does nothing."""

    def __init__(self) -> None:
        self._updates: golang.Channel[ResourceUpdates] = golang.Channel(1)

    def start(self, node: v1.Node, active_pods: Callable[[], list[v1.Pod]]) -> None:
        klog.v(2).info_s("Starting stub container manager")

    def get_node_config(self) -> NodeConfig:
        return NodeConfig(cgroups_per_qos=False)

    def new_pod_container_manager(self) -> PodContainerManager:
        return PodContainerManagerNoop(CgroupName(()))

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return QOSContainersInfo(CgroupName(()), CgroupName(()), CgroupName(()))

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        return {}

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        # DIVERGES: Go's stub has no storage, and so no pod that asks for some could run on a hollow node.
        if not local_storage_capacity_isolation:
            return {}
        return cadvisor.ephemeral_storage_capacity_from_fs_info(cadvisor.Cadvisor().root_fs_info())

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity:
        return DevicePluginResourceCapacity({}, {}, [])

    def should_reset_extended_resource_capacity(self) -> bool:
        return False

    def status(self) -> Status:
        return Status()

    def update_qos_cgroups(self) -> None:
        return None

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        return kubecontainer.RunContainerOptions()

    def internal_container_lifecycle(self) -> InternalContainerLifecycle:
        return InternalContainerLifecycle()

    def get_pod_cgroup_root(self) -> str:
        return ""

    def updates(self) -> golang.Channel[ResourceUpdates]:
        return self._updates
