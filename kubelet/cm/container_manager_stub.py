"""Define a container manager that creates no cgroups, for hollow nodes and tests.

Go: pkg/kubelet/cm/container_manager_stub.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kubelet import cadvisor, lifecycle
from kubelet import container as kubecontainer
from kubelet.cm.container_manager import (
    ActivePodsFunc,
    ClaimsUnsupportedError,
    DevicePluginResourceCapacity,
    GetNodeFunc,
    NodeConfig,
    Status,
)
from kubelet.cm.containermap import CouldRunFunc
from kubelet.cm.internal_container_lifecycle import InternalContainerLifecycle, InternalContainerLifecycleImpl
from kubelet.cm.pod_container_manager import PodContainerManager, PodContainerManagerNoop
from kubelet.cm.resourceupdates import Update
from kubelet.cm.types import CgroupName, QOSContainersInfo
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.apiserver.server import healthz

if TYPE_CHECKING:
    from kubelet import config, status
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
    from kubelet.cri import apis as internalapi
    from kubelet.pluginmanager import cache
    from pkg.scheduler import framework


class ContainerManagerStub:
    """Implement ContainerManager without effect: admit every pod and change nothing."""

    def __init__(self) -> None:
        self._updates: golang.Channel[Update] = golang.Channel(1)

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
        klog.v(2).info_s("Starting stub container manager")

    def system_cgroups_limit(self) -> dict[str, Quantity]:
        return {}

    def get_node_config(self) -> NodeConfig:
        return NodeConfig(cgroups_per_qos=False)

    def status(self) -> Status:
        return Status()

    def new_pod_container_manager(self) -> PodContainerManager:
        return PodContainerManagerNoop(CgroupName(()))

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return QOSContainersInfo(CgroupName(()), CgroupName(()), CgroupName(()))

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        return {}

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        # DIVERGES (fault of Go): a hollow node reports the storage of the machine on which it runs.
        # Go: pkg/kubelet/cm/container_manager_stub.go, (*containerManagerStub).GetCapacity: it reports 0 bytes.
        # Why: no pod that requests ephemeral storage could run on a hollow node.
        # Test: container_manager_test.py:test_storage_of_a_hollow_node
        if not local_storage_capacity_isolation:
            return {}
        return cadvisor.ephemeral_storage_capacity_from_fs_info(cadvisor.Cadvisor().root_fs_info())

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity:
        return DevicePluginResourceCapacity({}, {}, [])

    def update_qos_cgroups(self) -> None:
        return None

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        return kubecontainer.RunContainerOptions()

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        return None

    def internal_container_lifecycle(self) -> InternalContainerLifecycle:
        return InternalContainerLifecycleImpl(None, None, None)

    def get_pod_cgroup_root(self) -> str:
        return ""

    def get_plugin_registration_handlers(self) -> Mapping[str, cache.PluginHandler]:
        return {}

    def get_health_checkers(self) -> list[healthz.HealthChecker]:
        return []

    def should_reset_extended_resource_capacity(self) -> bool:
        return False

    def get_allocate_resources_pod_admit_handler(self) -> lifecycle.PodAdmitHandler:
        return AdmitAll()

    def get_node_allocatable_absolute(self) -> dict[str, Quantity]:
        return {}

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        # DIVERGES (fault of Go): a pod with resource claims does not start on a hollow node.
        # Go: pkg/kubelet/cm/container_manager_stub.go, (*containerManagerStub).PrepareDynamicResources: the pod runs
        # without the resources that it claims.
        # Why: no driver has prepared the pod's devices.
        # Test: container_manager_test.py:test_claims_are_refused_where_there_is_no_api_server
        if pod.spec.resource_claims:
            raise ClaimsUnsupportedError

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        return None

    def pod_might_need_to_unprepare_resources(self, uid: types.UID) -> bool:
        return False

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        return None

    def updates(self) -> golang.Channel[Update]:
        return self._updates

    def pod_has_exclusive_cpus(self, pod: v1.Pod) -> bool:
        return False

    def container_has_exclusive_cpus(self, pod: v1.Pod, container: v1.Container) -> bool:
        return False

    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]:
        return ()

    def get_allocatable_cpus(self) -> Sequence[int]:
        return ()

    def update_allocated_devices(self) -> None:
        return None

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]:
        return ()

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]:
        return ()

    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]:
        return ()

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]:
        return ()

    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> Sequence[podresourcesapi.DynamicResource]:
        return ()


class AdmitAll:
    """Admit every pod, because the stub allocates nothing."""

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        return lifecycle.PodAdmitResult(admit=True)
