"""Run the container manager of a Linux node.

Go: pkg/kubelet/cm/container_manager_linux.go
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kubelet import cadvisor, events, lifecycle
from kubelet import container as kubecontainer
from kubelet.cm import cpumanager, devicemanager, memorymanager, topologymanager
from kubelet.cm import systemd as systemdlib
from kubelet.cm.cgroup_common import SYSTEMD
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.container_manager import (
    DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME,
    ActivePodsFunc,
    ClaimsUnsupportedError,
    DevicePluginResourceCapacity,
    GetNodeFunc,
    NodeConfig,
    Status,
    container_has_exclusive_cpus,
    pod_has_exclusive_cpus,
)
from kubelet.cm.helpers import build_container_map_and_running_set_from_runtime, get_container
from kubelet.cm.internal_container_lifecycle import InternalContainerLifecycle, InternalContainerLifecycleImpl
from kubelet.cm.kernel_tunables import KernelTunableBehavior, setup_kernel_tunables
from kubelet.cm.node_container_manager import PIDS, NodeContainerManager
from kubelet.cm.pod_container_manager import (
    PodContainerManager,
    PodContainerManagerImpl,
    PodContainerManagerNoop,
)
from kubelet.cm.qos_container_manager import QOSContainerManager
from kubelet.cm.resourceupdates import Update
from kubelet.cm.subsystems import CgroupSubsystems, get_cgroup_subsystems, validate_system_requirements
from kubelet.cm.system_containers import (
    SystemContainer,
    ensure_process_in_container_with_oom_score,
    new_kubelet_cgroups,
    new_system_cgroups,
)
from kubelet.cm.types import CgroupName, InvalidCgroupError, QOSContainersInfo, cgroup_name
from kubelet.util import CGROUP_ROOT, swap
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util import wait
from pkg.apiserver.server import healthz
from pkg.utils import cpuset

if TYPE_CHECKING:
    from kubelet import config, status
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cm import dra
    from kubelet.cm.containermap import CouldRunFunc
    from kubelet.cm.dra import claiminfo
    from kubelet.cm.memorymanager import state as memorymanagerstate
    from kubelet.cri import apis as internalapi
    from kubelet.pluginmanager import cache
    from pkg import mount_utils
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record
    from pkg.scheduler import framework

_UPDATES_CAPACITY = 10
# _ENSURE_STATE_PERIOD is the time between two checks of the cgroups that belong to no pod, _WATCH_PERIOD the time
# between two checks of the kubelet's own cgroup. Both are in seconds.
_ENSURE_STATE_PERIOD = 60.0
_WATCH_PERIOD = 300.0
_CGROUPFS = "cgroupfs"
_STATIC = "static"


@dataclass(frozen=True, slots=True)
class Host:
    """Hold the paths at which the kernel shows its state, and the connection to systemd."""

    cgroup_root: str = CGROUP_ROOT
    proc: str = "/proc"
    # None means the systemd that runs this machine, if there is one.
    systemd: systemdlib.Manager | None = None


class ContainerManagerImpl:
    """Own the cgroups above the containers, and the managers of devices, cores, memory and claims."""

    def __init__(
        self,
        mount_util: mount_utils.Interface,
        cadvisor_interface: cadvisor.Interface,
        node_config: NodeConfig,
        recorder: record.EventRecorder,
        kube_client: kubernetes.Interface | None,
        host: Host | None = None,
    ) -> None:
        """Raise ValueError if the node cannot support the configuration, OSError if the node's state cannot be read."""
        self._host = host = host or Host()
        self._cadvisor = cadvisor_interface
        self._recorder = recorder
        self._kube_client = kube_client
        self._lock = threading.Lock()  # This lock guards _node_config.
        subsystems = get_cgroup_subsystems(host.cgroup_root, f"{host.proc}/self/mountinfo")
        self._status = _validate_host(node_config, subsystems, host)
        self._warn_of_swap(mount_util, node_config)
        systemd = _find_systemd(host) if node_config.cgroup_driver == SYSTEMD else None
        self._cgroup_manager = new_cgroup_manager(node_config.cgroup_driver, host.cgroup_root, subsystems, systemd)
        # Cgroups that belong to no pod are named by path, whatever the driver is.
        self._plain_cgroups = new_cgroup_manager(_CGROUPFS, host.cgroup_root, subsystems)
        self._node_config = replace(node_config, cgroup_version=self._cgroup_manager.version())
        if node_config.cpu_manager_policy == _STATIC:
            self._cgroup_manager.set_cpu_load_balance_disable()
        self._cgroup_root = self._find_cgroup_root()
        self._qos_container_manager = QOSContainerManager(
            self._cgroup_root, self._cgroup_manager, node_config.qos_reserved, node_config.memory_reservation_policy
        )
        self._node_containers = NodeContainerManager(
            self._node_config,
            self._cgroup_manager,
            self._cgroup_root,
            lambda: self.get_capacity(True),
            self._get_internal_capacity,
            self._get_shared_cpus,
            recorder,
        )
        self._node_containers.validate_node_allocatable()
        # `_told` maps the message of a recurring fault to the error that was last logged for it.
        self._told: dict[str, str] = {}
        self._system_containers: list[SystemContainer] = []
        self._updates: golang.Channel[Update] = golang.Channel(_UPDATES_CAPACITY)
        self._build_managers(cadvisor_interface.machine_info())
        klog.v(2).info_s("Creating Container Manager object based on Node Config", nodeConfig=self._node_config)

    def _warn_of_swap(self, mount_util: mount_utils.Interface, config: NodeConfig) -> None:
        if swap.is_swap_on(f"{self._host.proc}/swaps") and not swap.is_tmpfs_noswap_option_supported(
            mount_util, config.kubelet_root_dir
        ):
            self._recorder.event(
                v1.ObjectReference(api_version="v1", kind="Node", name=config.node_name),
                v1.EVENT_TYPE_WARNING,
                events.POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK,
                "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) "
                "might be swapped to disk and should no longer be considered secure.",
            )

    def _find_cgroup_root(self) -> CgroupName:
        """Return the cgroup above all pods. Raise ValueError if that cgroup's parent does not exist."""
        config = self._node_config
        root = CgroupName(tuple(part for part in config.cgroup_root.split("/") if part))
        if not config.cgroups_per_qos:
            return root
        if not config.cgroup_root:
            raise ValueError(
                "invalid configuration: cgroups-per-qos was specified and cgroup-root was not specified. To enable "
                "the QoS cgroup hierarchy you need to specify a valid cgroup-root"
            )
        try:
            self._cgroup_manager.validate(root)
        except InvalidCgroupError as err:
            raise ValueError(f"invalid configuration: {err}") from err
        klog.info_s("Container manager verified user specified cgroup-root exists", cgroupRoot=list(root))
        return cgroup_name(root, DEFAULT_NODE_ALLOCATABLE_CGROUP_NAME)

    # ---- The managers ----

    def _build_managers(self, machine_info: cadvisorapi.MachineInfo) -> None:
        """Create the managers. The topology manager asks them for hints in the order in which they are added."""
        config = self._node_config
        reservation = self.get_node_allocatable_reservation()
        self._topology_manager = topologymanager.Manager(
            machine_info.topology,
            config.topology_manager_policy,
            config.topology_manager_scope,
            config.topology_manager_policy_options,
        )
        klog.info_s("Creating device plugin manager")
        self._device_manager = devicemanager.ManagerImpl(
            machine_info.topology,
            self._topology_manager,
            directory=config.device_plugin_directory,
            await_plugins=config.await_device_plugins,
        )
        self._topology_manager.add_hint_provider(self._device_manager)
        self._dra_manager = self._new_dra_manager()
        self._cpu_manager = cpumanager.Manager(
            config.cpu_manager_policy,
            config.cpu_manager_policy_options,
            config.cpu_manager_reconcile_period,
            machine_info,
            config.reserved_system_cpus or cpuset.CPUSet(),
            reservation,
            config.kubelet_root_dir,
            self._topology_manager,
        )
        self._topology_manager.add_hint_provider(self._cpu_manager)
        self._memory_manager = memorymanager.Manager(
            config.memory_manager_policy,
            machine_info,
            reservation,
            config.memory_manager_reserved_memory,
            config.kubelet_root_dir,
            self._topology_manager,
        )
        self._topology_manager.add_hint_provider(self._memory_manager)
        managers = (self._device_manager, self._cpu_manager, self._memory_manager)
        self._admission = _ResourceAdmission(self._topology_manager, managers)

    def _new_dra_manager(self) -> dra.Manager | None:
        """Return the DRA manager, or None without an API server.

        DIVERGES (platform): a DRA driver cannot register on a node without an API server.
        Go: pkg/kubelet/cm/container_manager_linux.go, NewContainerManager: the driver registers, and is never called.
        Why: there are no claims without an API server, and Python would load the manager's modules for nothing.
        Test: container_manager_test.py:test_claims_are_refused_where_there_is_no_api_server
        """
        if self._kube_client is None:
            return None
        from kubelet.cm import dra

        klog.info_s("Creating Dynamic Resource Allocation (DRA) manager")
        return dra.Manager(self._kube_client, self._node_config.kubelet_root_dir)

    def _get_shared_cpus(self) -> str:
        """Return all cores, or "" if the CPU manager assigns cores to containers."""
        managed = not self._cpu_manager.get_allocatable_cpus().is_empty()
        return "" if managed else str(self._cpu_manager.get_all_cpus())

    def _forward_updates(self, ctx: golang.Context) -> None:
        """Forward the managers' announcements to one channel, each on a thread that ends with `ctx`."""
        self._forward(ctx, "deviceManager", self._device_manager.updates())
        if self._dra_manager is not None and features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
            self._forward(ctx, "draManager", self._dra_manager.updates())

    def _forward(self, ctx: golang.Context, source: str, channel: golang.Channel[Update]) -> None:
        def forward() -> None:
            while (update := golang.select(channel, ctx.done()).took(channel)) and update.ok:
                klog.v(4).info_s(
                    "Container Manager: forwarding resource update", source=source, pods=update.value.pod_uids
                )
                try:
                    self._updates.send(update.value, ctx)
                except golang.ContextError:
                    return  # The kubelet is stopping, and nothing receives updates any longer.

        golang.go(forward, name=f"resource-updates-{source}")

    # ---- Start ----

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
        container_map, running = build_container_map_and_running_set_from_runtime(ctx, runtime_service)
        if self._dra_manager is not None:
            with _naming("dra manager"):
                self._dra_manager.start(ctx, active_pods, could_run, get_node, sources_ready)
        with _naming("cpu manager"):
            self._cpu_manager.start(
                ctx, active_pods, could_run, sources_ready, pod_status_provider, runtime_service, container_map.clone()
            )
        with _naming("memory manager"):
            self._memory_manager.start(
                ctx, active_pods, could_run, sources_ready, pod_status_provider, runtime_service, container_map.clone()
            )
        self._setup_node(ctx, active_pods)
        self._device_manager.start(ctx, active_pods, could_run, sources_ready, container_map.clone(), running)
        self._admission.start(active_pods, could_run, sources_ready)
        self._forward_updates(ctx)

    def _setup_node(self, ctx: golang.Context, active_pods: ActivePodsFunc) -> None:
        config = self._node_config
        if config.cgroups_per_qos:
            self._node_containers.create_node_allocatable_cgroups()
            self._qos_container_manager.start(ctx, self.get_node_allocatable_absolute, active_pods)
        self._node_containers.enforce_node_allocatable_cgroups(ctx)
        self._system_containers = self._find_system_containers()
        if self._system_containers:
            golang.go(wait.until, self._ensure_state, _ENSURE_STATE_PERIOD, ctx, name="system-cgroups")
        if not config.kubelet_cgroups_name:
            golang.go(wait.until, self._watch_own_cgroup, _WATCH_PERIOD, ctx, name="kubelet-cgroup")

    def _find_system_containers(self) -> list[SystemContainer]:
        """List the cgroups for processes outside pods. Raise ValueError for a cgroup that is not allowed."""
        config, host = self._node_config, self._host
        found: list[SystemContainer] = []
        if config.system_cgroups_name:
            found.append(new_system_cgroups(config.system_cgroups_name, self._plain_cgroups, host.proc))
        if config.kubelet_cgroups_name:
            name, score = config.kubelet_cgroups_name, config.kubelet_oom_score_adj
            found.append(new_kubelet_cgroups(name, score, self._plain_cgroups, host.cgroup_root, host.proc))
        return found

    def _ensure_state(self) -> None:
        for container in self._system_containers:
            try:
                container.ensure_state()
            except (OSError, LookupError) as err:
                self._tell_once("Failed to ensure state", err, containerName=container.name)

    def _watch_own_cgroup(self) -> None:
        """Protect the kubelet from the OOM killer, and record the cgroup that accounts for its usage."""
        host, config = self._host, self._node_config
        try:
            ensure_process_in_container_with_oom_score(
                os.getpid(), config.kubelet_oom_score_adj, None, self._plain_cgroups, host.cgroup_root, host.proc
            )
        except OSError as err:
            # The kubelet works without the permission to change its OOM score.
            self._tell_once("Failed to ensure process in container with oom score", err)
        try:
            found = get_container(host.cgroup_root, host.proc)
        except (OSError, LookupError) as err:
            self._tell_once("Failed to find cgroups of kubelet", err)
            return
        with self._lock:
            self._node_config = replace(self._node_config, kubelet_cgroups_name=found)

    def _tell_once(self, message: str, err: Exception, **details: str) -> None:
        """Log a fault. A repetition of the same fault appears only with --v=4.

        DIVERGES (safer): the kubelet logs a lasting fault of its own cgroup once, when the fault begins.
        Go: pkg/kubelet/cm/container_manager_linux.go, (*containerManagerImpl).setupNode: the Go kubelet logs it every 5
        minutes.
        Why: the message would fill the log of a node whose kubelet permanently lacks a permission.
        Test: container_manager_test.py:test_fault_that_lasts_is_told_once
        """
        key = f"{message} {details}"
        level = 4 if self._told.get(key) == str(err) else 0
        self._told[key] = str(err)
        klog.v(level).info_s(message, **details, err=err)

    # ---- Cgroups ----

    def system_cgroups_limit(self) -> dict[str, Quantity]:
        # None of these cgroups has a CPU limit.
        return {v1.RESOURCE_CPU: resource.new_milli_quantity(0)}

    def get_node_config(self) -> NodeConfig:
        with self._lock:
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
            memory_reservation_policy=config.memory_reservation_policy,
            pod_has_exclusive_cpus=self.pod_has_exclusive_cpus,
        )

    def get_pod_cgroup_root(self) -> str:
        return self._cgroup_manager.name(self._cgroup_root)

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return self._qos_container_manager.get_qos_containers_info()

    def update_qos_cgroups(self) -> None:
        if self._node_config.cgroups_per_qos:
            self._qos_container_manager.update_cgroups()

    # ---- Capacity and reservations ----

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        return self._node_containers.get_node_allocatable_reservation()

    def get_node_allocatable_absolute(self) -> dict[str, Quantity]:
        return self._node_containers.get_node_allocatable_absolute()

    def _get_internal_capacity(self) -> dict[str, Quantity]:
        """Return the capacity, including process IDs, which pods share although no pod can request them."""
        # The import is here because pidlimit's package imports kuberuntime, which imports this package.
        from kubelet.stats import pidlimit

        capacity = self.get_capacity(False)
        try:
            max_pid = pidlimit.stats(self._host.proc).max_pid
        except (OSError, ValueError):
            return capacity
        return capacity if max_pid is None else capacity | {PIDS: resource.new_quantity(max_pid)}

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, Quantity]:
        capacity = cadvisor.capacity_from_machine_info(self._cadvisor.machine_info())
        if local_storage_capacity_isolation:
            try:
                capacity |= cadvisor.ephemeral_storage_capacity_from_fs_info(self._cadvisor.root_fs_info())
            except OSError as err:
                # The rest of the capacity is known without the root file system.
                klog.error_s(err, "Unable to get rootfs data from cAdvisor interface")
        return capacity

    # ---- The resources of containers ----

    def internal_container_lifecycle(self) -> InternalContainerLifecycle:
        return InternalContainerLifecycleImpl(self._cpu_manager, self._memory_manager, self._topology_manager)

    def get_allocate_resources_pod_admit_handler(self) -> lifecycle.PodAdmitHandler:
        return self._admission

    def get_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> kubecontainer.RunContainerOptions:
        options = kubecontainer.RunContainerOptions()
        if self._dra_manager is not None:
            claimed = self._dra_manager.get_resources(pod, container)
            klog.v(5).info_s("Determined CDI devices for pod", pod=klog.kobj(pod), cdiDevices=claimed.cdi_devices)
            options.cdi_devices += claimed.cdi_devices
        # The device manager allocated these devices when the pod was admitted.
        given = self._device_manager.get_device_run_container_options(ctx, pod, container)
        if given is not None:
            options.devices += given.devices
            options.mounts += given.mounts
            options.envs += given.envs
            options.annotations += given.annotations
            options.cdi_devices += given.cdi_devices
        return options

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        self._device_manager.update_plugin_resources(node, attrs)

    def get_plugin_registration_handlers(self) -> Mapping[str, cache.PluginHandler]:
        from kubelet.apis.pluginregistration.v1 import constants as pluginregistration

        handlers: dict[str, cache.PluginHandler] = {
            pluginregistration.DEVICE_PLUGIN: self._device_manager.get_watcher_handler()
        }
        if self._dra_manager is not None:
            handlers[pluginregistration.DRA_PLUGIN] = self._dra_manager.get_watcher_handler()
        return handlers

    def get_health_checkers(self) -> list[healthz.HealthChecker]:
        return [self._device_manager.get_health_checker()]

    def get_device_plugin_resource_capacity(self) -> DevicePluginResourceCapacity:
        return DevicePluginResourceCapacity(*self._device_manager.get_capacity())

    def should_reset_extended_resource_capacity(self) -> bool:
        return self._device_manager.should_reset_extended_resource_capacity()

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        if self._dra_manager is not None:
            self._dra_manager.prepare_resources(ctx, pod)
        elif pod.spec.resource_claims:
            # It would be worse to run the pod without the resources that it claims.
            raise ClaimsUnsupportedError

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        if self._dra_manager is not None:
            self._dra_manager.unprepare_resources(ctx, pod)

    def pod_might_need_to_unprepare_resources(self, uid: types.UID) -> bool:
        return self._dra_manager is not None and self._dra_manager.pod_might_need_to_unprepare_resources(uid)

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        self._device_manager.update_allocated_resources_status(pod, status)
        if self._dra_manager is not None and features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
            self._dra_manager.update_allocated_resources_status(pod, status)

    def updates(self) -> golang.Channel[Update]:
        return self._updates

    def pod_has_exclusive_cpus(self, pod: v1.Pod) -> bool:
        return pod_has_exclusive_cpus(self._cpu_manager, pod)

    def container_has_exclusive_cpus(self, pod: v1.Pod, container: v1.Container) -> bool:
        return container_has_exclusive_cpus(self._cpu_manager, pod, container)

    # ---- The providers of the pod resources API ----

    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]:
        return self._cpu_manager.get_exclusive_cpus(pod_uid, container_name).list()

    def get_allocatable_cpus(self) -> Sequence[int]:
        return self._cpu_manager.get_allocatable_cpus().list()

    def update_allocated_devices(self) -> None:
        self._device_manager.update_allocated_devices()

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]:
        return _container_devices(self._device_manager.get_devices(pod_uid, container_name))

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]:
        return _container_devices(self._device_manager.get_allocatable_devices())

    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]:
        return _container_memory(self._memory_manager.get_memory(pod_uid, container_name))

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]:
        return _container_memory(self._memory_manager.get_allocatable_memory())

    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> Sequence[podresourcesapi.DynamicResource]:
        if self._dra_manager is None:
            return []
        try:
            claims = self._dra_manager.get_container_claim_infos(pod, container)
        except Exception as err:
            # A failure here must not keep a monitoring agent from the rest of the response.
            klog.error_s(err, "Unable to get container claim info state")
            return []
        return [_dynamic_resource(claim) for claim in claims]


class _ResourceManager(Protocol):
    def pods(self) -> set[str]:
        """Return the UIDs of the pods that have allocated resources."""
        ...


class _ResourceAdmission:
    """Admit pods as the topology manager does, but let a pod wait while a terminating pod holds what it needs.

    DIVERGES (fault of Go): a new pod waits for processors, memory or devices that a terminating pod still holds.
    Go: pkg/kubelet/cm/container_manager_linux.go, (*containerManagerImpl).GetAllocateResourcesPodAdmitHandler: only the
    topology manager decides, and the new pod shares the resources with the terminating pod.
    Why: both pods were promised exclusive resources; and a pod that is rejected instead of waiting has permanently
    failed.
    Test: container_manager_test.py:test_pod_waits_for_what_one_that_is_ending_still_has
    """

    def __init__(self, topology_manager: topologymanager.Manager, managers: Sequence[_ResourceManager]) -> None:
        self._topology_manager = topology_manager
        self._managers = managers
        # `start` sets these fields before the first pod is admitted.
        self._active_pods: ActivePodsFunc = list
        self._could_run: CouldRunFunc = lambda pod_uid: False
        self._sources_ready: config.SourcesReady | None = None

    def start(self, active_pods: ActivePodsFunc, could_run: CouldRunFunc, sources_ready: config.SourcesReady) -> None:
        self._active_pods = active_pods
        self._could_run = could_run
        self._sources_ready = sources_ready

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        active = {pod.metadata.uid for pod in self._active_pods()}
        self._topology_manager.forget_all_but(active | {attrs.pod.metadata.uid})
        result = self._topology_manager.admit(attrs)
        if result.admit or result.wait or not (holders := self._ending_holders()):
            return result
        klog.v(2).info_s(
            "Pod waits for resources of terminating pods", pod=klog.kobj(attrs.pod), podUIDs=sorted(holders)
        )
        return replace(result, message=f"waits for resources of terminating pods: {result.message}", wait=True)

    def _ending_holders(self) -> set[str]:
        """Return the pods that hold resources but are terminating."""
        holders = set[str]().union(*(manager.pods() for manager in self._managers))
        inactive = holders - {pod.metadata.uid for pod in self._active_pods()}
        if self._sources_ready is not None and not self._sources_ready.all_ready():
            # Until all sources have reported, an unknown pod may be gone, or may not have arrived yet.
            return inactive
        return {uid for uid in inactive if self._could_run(types.UID(uid))}


@contextmanager
def _naming(manager: str) -> Iterator[None]:
    """Name the manager in a ValueError of its start, which another attempt would raise again."""
    try:
        yield
    except ValueError as err:
        raise ValueError(f"start {manager} error: {err}") from err


def _validate_host(config: NodeConfig, subsystems: CgroupSubsystems, host: Host) -> Status:
    """Return whether the host can limit pods. Raise ValueError if it cannot and the configuration requires it."""
    behavior = KernelTunableBehavior.ERROR if config.protect_kernel_defaults else KernelTunableBehavior.MODIFY
    setup_kernel_tunables(behavior, f"{host.proc}/sys")
    try:
        return Status(validate_system_requirements(subsystems, host.cgroup_root))
    except ValueError as err:
        if config.cgroups_per_qos:
            raise
        # DIVERGES (preference: cgroupsPerQOS: false): the kubelet starts on a machine that lacks cgroup hierarchies.
        # Go: pkg/kubelet/cm/container_manager_linux.go, (*containerManagerImpl).setupNode: the Go kubelet does not
        # start.
        # Why: a kubelet that creates no cgroups for pods does not need the hierarchies.
        # Test: container_manager_test.py:test_controller_without_a_mount_is_refused,
        # container_manager_test.py:test_read_only_hierarchies_are_refused
        klog.warning_s("Cannot limit the resources of pods", err=err)
        return Status(err)


def _find_systemd(host: Host) -> systemdlib.Manager:
    """Return the connection to systemd. Raise ValueError if systemd does not run this machine."""
    if host.systemd is not None:
        return host.systemd
    if not systemdlib.is_running_systemd():
        raise ValueError(
            "systemd not running on this host, cannot use systemd cgroups manager: set cgroupDriver to cgroupfs, here "
            "and in the container runtime"
        )
    # This import loads the D-Bus library, which the cgroupfs driver does not need.
    from kubelet.cm.systemd_manager import DBusManager

    return DBusManager()


def _container_devices(devices: devicemanager.ResourceDeviceInstances) -> list[podresourcesapi.ContainerDevices]:
    """Return one message for each device and NUMA node.

    Go: container_manager.go, containerDevicesFromResourceDeviceInstances
    """
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
    """Return one message for each block of memory.

    Go: containerMemoryFromBlock
    """
    from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi

    found = []
    for block in blocks:
        memory = podresourcesapi.ContainerMemory(memory_type=block.type, size=block.size)
        for node in block.numa_affinity:
            memory.topology.nodes.add(ID=node)
        found.append(memory)
    return found


def _dynamic_resource(claim: claiminfo.ClaimInfo) -> podresourcesapi.DynamicResource:
    """Return a claim in the form of the pod resources API.

    DIVERGES (fault of Go): each device of a claim shows its own CDI names.
    Go: pkg/kubelet/cm/container_manager_linux.go, (*containerManagerImpl).GetDynamicResources: a device also shows the
    names of the driver's devices before it, because all devices share one list.
    Why: a monitoring agent would confuse the devices of a claim.
    Test: container_manager_test.py:test_devices_of_a_claim_show_their_own_cdi_names
    """
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
