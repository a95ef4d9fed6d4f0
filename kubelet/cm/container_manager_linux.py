"""The container manager of a Linux node.

Go: pkg/kubelet/cm/container_manager_linux.go
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubelet import cadvisor, lifecycle
from kubelet import container as kubecontainer
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.container_manager import (
    DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME,
    ActivePodsFunc,
    DevicePluginResourceCapacity,
    GetNodeFunc,
    NodeConfig,
    Status,
    container_has_exclusive_cpus,
    pod_has_exclusive_cpus,
)
from kubelet.cm.container_manager_stub import AdmitAll
from kubelet.cm.helpers import build_container_map_and_running_set_from_runtime, hard_eviction_reservation
from kubelet.cm.internal_container_lifecycle import InternalContainerLifecycle, InternalContainerLifecycleImpl
from kubelet.cm.pod_container_manager import (
    PodContainerManager,
    PodContainerManagerImpl,
    PodContainerManagerNoop,
)
from kubelet.cm.qos_container_manager import QOSContainerManager
from kubelet.cm.resourceupdates import Update
from kubelet.cm.types import CgroupName, QOSContainersInfo, cgroup_name
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apiserver.server import healthz

if TYPE_CHECKING:
    from kubelet import config, status
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cm import cpumanager, devicemanager, dra, memorymanager, topologymanager
    from kubelet.cm.memorymanager import state as memorymanagerstate
    from kubelet.cri import apis as internalapi
    from kubelet.pluginmanager import cache
    from pkg import mount_utils
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record
    from pkg.scheduler import framework

_UPDATES_CAPACITY = 10


def _find(module: str, name: str) -> Any:
    """The class of a manager, or None where it is not there."""
    try:
        return getattr(importlib.import_module(f"kubelet.cm.{module}"), name, None)
    except ImportError:
        return None


class ContainerManagerImpl:
    """Owns the cgroups above containers, and the managers of devices, cores, memory and claims."""

    def __init__(
        self,
        mount_util: mount_utils.Interface | None,
        cadvisor_interface: cadvisor.Interface,
        node_config: NodeConfig,
        recorder: record.EventRecorder,
        kube_client: kubernetes.Interface | None,
    ) -> None:
        self._mount_util = mount_util
        self._cadvisor = cadvisor_interface
        self._node_config = node_config
        self._recorder = recorder
        self._kube_client = kube_client
        self._cgroup_manager = new_cgroup_manager(node_config.cgroup_driver)
        root = CgroupName(tuple(part for part in node_config.cgroup_root.split("/") if part))
        if node_config.cgroups_per_qos:
            root = cgroup_name(root, DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME)
        self._cgroup_root = root
        self._qos_container_manager = QOSContainerManager(root, self._cgroup_manager)
        self._status = Status()
        self._updates: golang.Channel[Update] = golang.Channel(_UPDATES_CAPACITY)
        self._topology_manager: topologymanager.Manager | None = None
        self._device_manager: devicemanager.ManagerImpl | None = None
        self._dra_manager: dra.Manager | None = None
        self._cpu_manager: cpumanager.Manager | None = None
        self._memory_manager: memorymanager.Manager | None = None
        self._build_managers(cadvisor_interface.machine_info())

    # ---- The managers ----

    def _build_managers(self, machine_info: cadvisorapi.MachineInfo) -> None:
        """Each is asked for hints by the topology manager in the order in which it is added."""
        config = self._node_config
        new_topology_manager = _find("topologymanager", "Manager")
        if new_topology_manager is None:
            return
        # The machine's topology is read by name until its reader is there.
        topology = getattr(machine_info, "topology", [])
        self._topology_manager = topology_manager = new_topology_manager(
            topology,
            config.topology_manager_policy,
            config.topology_manager_scope,
            config.topology_manager_policy_options,
        )
        if (new_device_manager := _find("devicemanager", "ManagerImpl")) is not None:
            klog.info_s("Creating device plugin manager")
            self._device_manager = new_device_manager(
                topology, topology_manager, root_directory=config.kubelet_root_dir
            )
            topology_manager.add_hint_provider(self._device_manager)
        # Without an API server there are no claims.
        if self._kube_client is not None and (new_dra_manager := _find("dra", "Manager")) is not None:
            klog.info_s("Creating Dynamic Resource Allocation (DRA) manager")
            self._dra_manager = new_dra_manager(self._kube_client, config.kubelet_root_dir)
        if (new_cpu_manager := _find("cpumanager", "Manager")) is not None:
            self._cpu_manager = new_cpu_manager(
                config.cpu_manager_policy,
                config.cpu_manager_policy_options,
                config.cpu_manager_reconcile_period,
                machine_info,
                config.reserved_system_cpus,
                self.get_node_allocatable_reservation(),
                config.kubelet_root_dir,
                topology_manager,
            )
            topology_manager.add_hint_provider(self._cpu_manager)
        if (new_memory_manager := _find("memorymanager", "Manager")) is not None:
            self._memory_manager = new_memory_manager(
                config.memory_manager_policy,
                machine_info,
                self.get_node_allocatable_reservation(),
                config.memory_manager_reserved_memory,
                config.kubelet_root_dir,
                topology_manager,
            )
            topology_manager.add_hint_provider(self._memory_manager)

    def _forward_updates(self, ctx: golang.Context) -> None:
        """Bring what the managers announce into one channel, each on a thread that ends with ctx."""
        if self._device_manager is not None:
            self._forward(ctx, "deviceManager", self._device_manager.updates())
        if self._dra_manager is not None and features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
            self._forward(ctx, "draManager", self._dra_manager.updates())

    def _forward(self, ctx: golang.Context, source: str, channel: golang.Channel[Update]) -> None:
        def forward() -> None:
            while (selected := golang.select(channel, ctx.done())).index == 0 and selected.ok:
                klog.v(4).info_s(
                    "Container Manager: forwarding resource update", source=source, pods=selected.value.pod_uids
                )
                self._updates.send(selected.value, ctx)

        golang.go(forward, name=f"resource-updates-{source}")

    # ---- Life ----

    def start(
        self,
        ctx: golang.Context,
        node: v1.Node,
        active_pods: ActivePodsFunc,
        get_node: GetNodeFunc,
        sources_ready: config.SourcesReady,
        pod_status_provider: status.PodStatusProvider,
        runtime_service: internalapi.RuntimeService,
        local_storage_capacity_isolation: bool,
    ) -> None:
        klog.v(2).info_s("Creating Container Manager object based on Node Config", nodeConfig=self._node_config)
        container_map, running = build_container_map_and_running_set_from_runtime(ctx, runtime_service)
        if self._dra_manager is not None:
            self._dra_manager.start(ctx, active_pods, get_node, sources_ready)
        if self._cpu_manager is not None:
            self._cpu_manager.start(
                ctx, active_pods, sources_ready, pod_status_provider, runtime_service, container_map.clone()
            )
        if self._memory_manager is not None:
            self._memory_manager.start(
                ctx, active_pods, sources_ready, pod_status_provider, runtime_service, container_map.clone()
            )
        if self._node_config.cgroups_per_qos:
            self._qos_container_manager.start(active_pods)
        if self._device_manager is not None:
            self._device_manager.start(ctx, active_pods, sources_ready, container_map.clone(), running)
        self._forward_updates(ctx)

    # ---- Cgroups ----

    def system_cgroups_limit(self) -> dict[str, Quantity]:
        return {}

    def get_node_config(self) -> NodeConfig:
        return self._node_config

    def status(self) -> Status:
        return self._status

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

    def get_pod_cgroup_root(self) -> str:
        return self._cgroup_manager.name(self._cgroup_root)

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return self._qos_container_manager.get_qos_containers_info()

    def update_qos_cgroups(self) -> None:
        if self._node_config.cgroups_per_qos:
            self._qos_container_manager.update_cgroups()

    # ---- What there is, and what of it is kept ----

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        """Go: node_container_manager_linux.go"""
        config = self._node_config
        kept = hard_eviction_reservation(config.hard_eviction_thresholds, self.get_capacity(True))
        reserved = dict(config.kube_reserved)
        for name, quantity in [*config.system_reserved.items(), *kept.items()]:
            reserved[name] = reserved[name].add(quantity) if name in reserved else quantity
        return reserved

    def get_node_allocatable_absolute(self) -> dict[str, Quantity]:
        return {}

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        capacity = cadvisor.capacity_from_machine_info(self._cadvisor.machine_info())
        if local_storage_capacity_isolation:
            capacity |= cadvisor.ephemeral_storage_capacity_from_fs_info(self._cadvisor.root_fs_info())
        return capacity

    # ---- What containers are given ----

    def internal_container_lifecycle(self) -> InternalContainerLifecycle:
        return InternalContainerLifecycleImpl(self._cpu_manager, self._memory_manager, self._topology_manager)

    def get_allocate_resources_pod_admit_handler(self) -> lifecycle.PodAdmitHandler:
        return self._topology_manager or AdmitAll()

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        options = kubecontainer.RunContainerOptions()
        if self._dra_manager is not None:
            claimed = self._dra_manager.get_resources(pod, container)
            klog.v(5).info_s("Determined CDI devices for pod", pod=klog.kobj(pod), cdiDevices=claimed.cdi_devices)
            options.cdi_devices += claimed.cdi_devices
        if self._device_manager is None:
            return options
        # They were given to the pod when it was admitted.
        given = self._device_manager.get_device_run_container_options(ctx, pod, container)
        if given is not None:
            options.devices += given.devices
            options.mounts += given.mounts
            options.envs += given.envs
            options.annotations += given.annotations
            options.cdi_devices += given.cdi_devices
        return options

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        if self._device_manager is not None:
            self._device_manager.update_plugin_resources(node, attrs)

    def get_plugin_registration_handlers(self) -> Mapping[str, cache.PluginHandler]:
        from kubelet.apis.pluginregistration.v1 import constants as pluginregistration

        handlers: dict[str, cache.PluginHandler] = {}
        if self._device_manager is not None:
            handlers[pluginregistration.DEVICE_PLUGIN] = self._device_manager.get_watcher_handler()
        if self._dra_manager is not None:
            handlers[pluginregistration.DRA_PLUGIN] = self._dra_manager.get_watcher_handler()
        return handlers

    def get_health_checkers(self) -> list[healthz.HealthChecker]:
        return [] if self._device_manager is None else [self._device_manager.get_health_checker()]

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity:
        if self._device_manager is None:
            return DevicePluginResourceCapacity({}, {}, [])
        return DevicePluginResourceCapacity(*self._device_manager.get_capacity())

    def should_reset_extended_resource_capacity(self) -> bool:
        return self._device_manager is not None and self._device_manager.should_reset_extended_resource_capacity()

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        if self._dra_manager is not None:
            self._dra_manager.prepare_resources(ctx, pod)
        elif pod.spec.resource_claims:
            # Running it without what it claims would be worse.
            raise ValueError("resource claims are not supported by this node")

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        if self._dra_manager is not None:
            self._dra_manager.unprepare_resources(ctx, pod)

    def pod_might_need_to_unprepare_resources(self, uid: str) -> bool:
        return self._dra_manager is not None and self._dra_manager.pod_might_need_to_unprepare_resources(uid)

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        if self._device_manager is not None:
            self._device_manager.update_allocated_resources_status(pod, status)
        if self._dra_manager is not None and features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
            self._dra_manager.update_allocated_resources_status(pod, status)

    def updates(self) -> golang.Channel[Update]:
        return self._updates

    def pod_has_exclusive_cpus(self, pod: v1.Pod) -> bool:
        return self._cpu_manager is not None and pod_has_exclusive_cpus(self._cpu_manager, pod)

    def container_has_exclusive_cpus(self, pod: v1.Pod, container: v1.Container) -> bool:
        return self._cpu_manager is not None and container_has_exclusive_cpus(self._cpu_manager, pod, container)

    # ---- The providers of the pod resources API ----

    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]:
        if self._cpu_manager is None:
            return []
        return self._cpu_manager.get_exclusive_cpus(pod_uid, container_name).list()

    def get_allocatable_cpus(self) -> Sequence[int]:
        return [] if self._cpu_manager is None else self._cpu_manager.get_allocatable_cpus().list()

    def update_allocated_devices(self) -> None:
        if self._device_manager is not None:
            self._device_manager.update_allocated_devices()

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]:
        if self._device_manager is None:
            return []
        return _container_devices(self._device_manager.get_devices(pod_uid, container_name))

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]:
        if self._device_manager is None:
            return []
        return _container_devices(self._device_manager.get_allocatable_devices())

    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]:
        if self._memory_manager is None:
            return []
        return _container_memory(self._memory_manager.get_memory(pod_uid, container_name))

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]:
        return [] if self._memory_manager is None else _container_memory(self._memory_manager.get_allocatable_memory())

    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> Sequence[podresourcesapi.DynamicResource]:
        if self._dra_manager is None:
            return []
        try:
            claims = self._dra_manager.get_container_claim_infos(pod, container)
        except Exception as err:
            # An agent that looks on must not lose what else there is to tell.
            klog.error_s(err, "Unable to get container claim info state")
            return []
        return [_dynamic_resource(claim) for claim in claims]


def _container_devices(devices: devicemanager.ResourceDeviceInstances) -> list[podresourcesapi.ContainerDevices]:
    """One message per device and NUMA node.  Go: containerDevicesFromResourceDeviceInstances"""
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi

    found = []
    for resource_name, by_id in devices.items():
        for device_id, device in by_id.items():
            message = podresourcesapi.ContainerDevices(resource_name=resource_name, device_ids=[device_id])
            if not device.HasField("topology"):
                found.append(message)
                continue
            for node in device.topology.nodes:
                near = podresourcesapi.ContainerDevices()
                near.CopyFrom(message)
                near.topology.nodes.add(ID=node.ID)
                found.append(near)
    return found


def _container_memory(blocks: Sequence[memorymanagerstate.Block]) -> list[podresourcesapi.ContainerMemory]:
    """Go: containerMemoryFromBlock"""
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi

    found = []
    for block in blocks:
        memory = podresourcesapi.ContainerMemory(memory_type=block.type, size=block.size)
        for node in block.numa_affinity:
            memory.topology.nodes.add(ID=node)
        found.append(memory)
    return found


def _dynamic_resource(claim: dra.ClaimInfo) -> podresourcesapi.DynamicResource:
    """DIVERGES: each device shows its own CDI names; Go's shows those of the devices before it as well."""
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi

    message = podresourcesapi.DynamicResource(claim_name=claim.claim_name, claim_namespace=claim.namespace)
    for driver_name, driver_state in claim.driver_state.items():
        for device in driver_state.devices:
            message.claim_resources.add(
                cdi_devices=[podresourcesapi.CDIDevice(name=name) for name in device.cdi_device_ids],
                driver_name=driver_name,
                pool_name=device.pool_name,
                device_name=device.device_name,
                share_id=device.share_id,
            )
    return message
