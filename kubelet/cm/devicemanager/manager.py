"""Track the devices of all plugins, and allocate them to containers.

Go: pkg/kubelet/cm/devicemanager/manager.go
"""

from __future__ import annotations

import math
import os
import queue
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kubelet import checkpointmanager, metrics
from kubelet.apis.deviceplugin import v1beta1 as api
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm import admission
from kubelet.cm.containermap import ContainerMap, ContainerRef, CouldRunFunc
from kubelet.cm.devicemanager import checkpoint
from kubelet.cm.devicemanager.endpoint import Endpoint, EndpointImpl
from kubelet.cm.devicemanager.plugin import v1beta1 as plugin
from kubelet.cm.devicemanager.pod_devices import NODE_WITHOUT_TOPOLOGY, PodDevices, ResourceDeviceInstances
from kubelet.cm.devicemanager.topology_hints import (
    device_has_topology_alignment,
    generate_device_topology_hints,
    get_numa_node_ids,
)
from kubelet.cm.devicemanager.types import (
    ENDPOINT_STOP_GRACE_PERIOD,
    KUBELET_DEVICE_MANAGER_CHECKPOINT,
    DeviceRunContainerOptions,
)
from kubelet.cm.resourceupdates import Update
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api import resource as apiresource
from pkg.apiserver.server import healthz
from pkg.component_helpers import resource as resourcehelper
from pkg.util import grpcstatus

if TYPE_CHECKING:
    from kubelet import cadvisor, config, lifecycle
    from kubelet.cm import topologymanager
    from kubelet.pluginmanager import cache
    from pkg.scheduler import framework

_UPDATES_CAPACITY = 100
# MAX_PLUGINS limits the resources that have a plugin, or had one in the last minutes. Plugins that register at the same
# moment may exceed the limit slightly.
# DIVERGES (safer): beyond MAX_PLUGINS resources, a device plugin of another resource cannot register.
# Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).PluginConnected: there is no limit.
# Why: each plugin takes two threads, a connection and the memory for its list of devices.
# Test: manager_test.py:test_more_plugins_than_there_can_be
MAX_PLUGINS = 500
# _OPTIONS_TIMEOUT is the time, in seconds, that a registering plugin has to respond with its options.
_OPTIONS_TIMEOUT = 10.0
# _STOP_TIMEOUT is the time, in seconds, that a start waits until the previous server has stopped.
_STOP_TIMEOUT = 10.0
# _PATIENCE is the time, in seconds, that a pod's admission, and with it the sync loop, waits for an allocation before
# other pods are admitted.
_PATIENCE = 1.0


_Answer = TypeVar("_Answer")


class AllocationError(Exception):
    """Signal that a container cannot have its devices."""


class DevicesAwaitedError(admission.Error):
    """Signal that a container's devices are expected to become available soon."""

    wait = True


class CheckpointWriteError(admission.Error):
    """Signal that the allocations could not be written to the checkpoint.

    DIVERGES (safer): the pod waits, and the kubelet admits it once it can write the checkpoint.
    Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).allocateContainerResources: the pod permanently fails.
    Why: a shortage of disk space or file descriptors may soon be over.
    Test: manager_test.py:test_pod_waits_while_the_checkpoint_cannot_be_written
    """

    wait = True


class EndpointInfo(NamedTuple):
    """Hold a resource's plugin.

    `opts` and `plugin` are None if the plugin has not returned since the kubelet started.
    """

    e: Endpoint
    opts: pluginapi.DevicePluginOptions | None = None
    plugin: plugin.DevicePlugin | None = None


class _Container(NamedTuple):
    """Identify a container and one of the resources that it requests."""

    pod_uid: str
    container_name: str
    resource_name: str


class _Allocation(NamedTuple):
    """Record a pending Allocate call of a plugin, and when it began, by the monotonic clock."""

    devices: set[str]
    call: Future[pluginapi.AllocateResponse]
    start: float


class ManagerImpl:
    """Implement Manager."""

    def __init__(
        self,
        topology: Sequence[cadvisor.Node],
        topology_affinity_store: topologymanager.Store,
        *,
        directory: str,
        await_plugins: bool = False,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create the directory. Raise OSError.

        `directory` holds the sockets and the checkpoint. `await_plugins` says whether a pod waits for a plugin that is
        gone, has not returned after a restart, or fails.
        """
        socket_path = os.path.join(directory, api.KUBELET_SOCKET_NAME)
        klog.v(2).info_s("Creating Device Plugin manager", path=socket_path)
        self._clock = clock or clocklib.RealClock()
        self._await_plugins = await_plugins
        self._numa_nodes = [node.id for node in topology]
        self._topology_affinity_store = topology_affinity_store
        self._server = plugin.Server(socket_path, self, self, self._clock)
        # The thread `_stopper` stops the server when the context of the last start ends.
        self._stopper: golang.Thread | None = None
        self._checkpoint_dir = directory
        self._checkpoint_manager = checkpointmanager.CheckpointManager(directory)
        # DIVERGES (fault of Go): a node without a checkpoint at the kubelet's start counts as new until the kubelet
        # ends.
        # Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).ShouldResetExtendedResourceCapacity: it looks for
        # files each time; once the registration socket exists, the node no longer counts as new.
        # Why: a Node object that is registered later would keep the devices of the previous machine with that name.
        # Test: manager_test.py:test_node_that_was_made_anew
        self._node_recreated = not self._checkpoint_manager.list_checkpoints()
        self._updates: golang.Channel[Update] = golang.Channel(_UPDATES_CAPACITY)

        # `start` sets these fields, which do not change afterwards.
        self._active_pods: Callable[[], list[v1.Pod]] = list
        self._could_run: CouldRunFunc = lambda pod_uid: False
        self._sources_ready: Callable[[], bool] = lambda: True
        self._initial_containers: set[ContainerRef] = set()
        self._running_containers: set[ContainerRef] = set()

        # This lock is held during a whole allocation, including the calls to plugins. Never take it while holding
        # _lock.
        self._allocation_lock = threading.Lock()
        # This lock is held while the checkpoint is written, so that an older checkpoint never replaces a newer one.
        # Take it before _lock.
        self._checkpoint_lock = threading.Lock()
        # This lock guards the fields below. No plugin is called while it is held.
        self._lock = threading.Lock()
        # The keys of the four maps below are resource names.
        self._endpoints: dict[str, EndpointInfo] = {}
        self._all_devices = ResourceDeviceInstances()
        self._healthy_devices: dict[str, set[str]] = {}
        self._unhealthy_devices: dict[str, set[str]] = {}
        # `_awaited` maps each resource whose plugin is expected back to the time at which the manager began to wait for
        # its list.
        self._awaited: dict[str, float] = {}
        # `_waiting_pods` maps such a resource to the pods that wait for it.
        self._waiting_pods: dict[str, set[str]] = {}
        # The next two fields hold the calls to plugins that are in progress.
        self._allocations: dict[_Container, _Allocation] = {}
        self._preferences: dict[_Container, Future[pluginapi.PreferredAllocationResponse]] = {}
        # `_devices_to_reuse` holds the UID of the pod that is being allocated, and by resource the devices of its init
        # containers, which its other containers can reuse.
        self._devices_to_reuse: tuple[str, dict[str, set[str]]] = ("", {})
        # `_is_checkpoint_old` says whether the checkpoint lacks any allocation. The field is guarded by
        # _allocation_lock.
        self._is_checkpoint_old = False
        # PodDevices has its own lock.
        self._pod_devices = PodDevices()

    # ---- Start and stop ----

    def start(
        self,
        ctx: golang.Context,
        active_pods: Callable[[], list[v1.Pod]],
        could_run: CouldRunFunc,
        sources_ready: config.SourcesReady,
        initial_containers: ContainerMap,
        initial_container_running_set: set[str],
    ) -> None:
        klog.v(2).info_s("Starting Device Plugin manager")
        self._active_pods = active_pods
        self._could_run = could_run
        self._sources_ready = sources_ready.all_ready
        self._initial_containers = set(initial_containers.values())
        self._running_containers = {
            ref for container_id, ref in initial_containers.items() if container_id in initial_container_running_set
        }
        try:
            self._read_checkpoint()
        except ValueError as err:
            klog.error_s(
                err,
                "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date",
                path=os.path.join(self._checkpoint_dir, KUBELET_DEVICE_MANAGER_CHECKPOINT),
            )
        if self._stopper is not None:
            # A previous start of the kubelet failed after this step, and its thread may still be stopping the server.
            # That thread must not stop the server that is started here.
            self._stopper.join(_STOP_TIMEOUT)
            if self._stopper.is_alive():
                raise TimeoutError("the server for device plugins is still being stopped")
        # Start this thread first, so that a server never runs without the thread that stops it.
        self._stopper = golang.go(self._stop_with, ctx, name="device-plugin-server")
        self._server.start()

    def _stop_with(self, ctx: golang.Context) -> None:
        ctx.done().recv()
        self.stop()

    def stop(self) -> None:
        """Stop the server. Further calls do nothing."""
        self._server.stop()

    def cleanup_plugin_directory(self, directory: str) -> None:
        """Remove the sockets of an earlier kubelet and its plugins, for the server. Raise OSError."""
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            try:
                mode = os.stat(path).st_mode
            except OSError as err:
                klog.error_s(err, "Failed to stat file", path=path)
                continue
            if stat.S_ISSOCK(mode):
                os.unlink(path)

    def updates(self) -> golang.Channel[Update]:
        return self._updates

    def get_watcher_handler(self) -> cache.PluginHandler:
        return self._server

    def get_health_checker(self) -> healthz.HealthChecker:
        return healthz.HealthChecker("device-plugin", self._server.check)

    # ---- Calls from the server ----

    def plugin_connected(self, resource_name: str, device_plugin: plugin.DevicePlugin) -> None:
        """Add a plugin, for the server.

        Raise plugin.RegistrationError if the plugin does not answer with its options, or if there are too many plugins.
        """
        with self._lock:
            if resource_name not in self._endpoints and len(self._endpoints) >= MAX_PLUGINS:
                raise plugin.RegistrationError(f"there are plugins of {MAX_PLUGINS} resources, which is the maximum")
        try:
            options = plugin.call(
                device_plugin.api.GetDevicePluginOptions, pluginapi.Empty(), _OPTIONS_TIMEOUT, resource_name
            )
        except grpcstatus.StatusError as err:
            raise plugin.RegistrationError(f"failed to get device plugin options: {err}") from err
        with self._lock:
            self._endpoints[resource_name] = EndpointInfo(
                EndpointImpl(resource_name, device_plugin, self._clock), options, device_plugin
            )
        klog.v(2).info_s("Device plugin connected", resourceName=resource_name)

    def plugin_disconnected(self, resource_name: str, device_plugin: plugin.DevicePlugin) -> None:
        """Mark all devices of the resource as unhealthy, for the server.

        DIVERGES (fault of Go): devices stay healthy if another plugin of their resource has connected in the meantime.
        Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).PluginDisconnected: it does not check which plugin
        ended.
        Why: a plugin that was updated would have no healthy devices, and after five minutes its resource would be gone.
        Test: manager_test.py:test_plugin_that_ends_when_another_has_come
        """
        with self._lock:
            info = self._endpoints.get(resource_name)
            if info is None or info.plugin is not device_plugin:
                return
            klog.v(2).info_s("Mark all resources Unhealthy for resource", resourceName=resource_name)
            healthy = self._healthy_devices.pop(resource_name, set())
            self._healthy_devices[resource_name] = set()
            self._unhealthy_devices.setdefault(resource_name, set()).update(healthy)
            now = self._clock.monotonic()
            info.e.set_stop_time(now)
            self._awaited[resource_name] = now
        klog.v(2).info_s("Endpoint became unhealthy", resourceName=resource_name)

    def plugin_list_and_watch_receiver(self, resource_name: str, response: pluginapi.ListAndWatchResponse) -> None:
        """Process a plugin's list, for the server."""
        self.generic_device_update_callback(resource_name, response.devices)

    def generic_device_update_callback(self, resource_name: str, devices: Iterable[pluginapi.Device]) -> None:
        """Store the complete list of a resource's devices, and announce the pods that the change concerns."""
        now = {device.ID: device for device in devices}
        if now.pop("", None) is not None:
            # DIVERGES (safer): a device without an ID does not count.
            # Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).genericDeviceUpdateCallback: it counts.
            # Why: the kubelet could not tell the plugin which device to allocate.
            # Test: manager_test.py:test_devices_that_are_garbage
            klog.error_s(ValueError("device has no ID"), "Ignoring device", resourceName=resource_name)
        with self._lock:
            before = self._all_devices.get(resource_name, {})
            self._all_devices[resource_name] = now
            healthy = {id for id, device in now.items() if device.health == api.HEALTHY}
            self._healthy_devices[resource_name] = healthy
            self._unhealthy_devices[resource_name] = now.keys() - healthy
            self._awaited.pop(resource_name, None)
            concerned = self._waiting_pods.pop(resource_name, set())
        if features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
            # A new device may be one that a pod already had before it disappeared for a while.
            changed = {id for id in now if id not in before or before[id].health != now[id].health}
            concerned |= self._pod_devices.get_pods_for_devices(resource_name, changed)
        self._tell(concerned)
        try:
            self._write_checkpoint()
        except OSError as err:
            # The next allocation writes the checkpoint again.
            klog.error_s(err, "Writing checkpoint encountered")
        klog.v(2).info_s(
            "Processed device updates for resource",
            resourceName=resource_name,
            totalCount=len(now),
            healthyCount=len(healthy),
        )

    # ---- Capacity and health ----

    def get_capacity(
        self,
    ) -> tuple[dict[str, apiresource.Quantity], dict[str, apiresource.Quantity], list[str]]:
        with self._lock:
            gone = {name for name in self._healthy_devices if self._is_gone_locked(name)}
            for name in gone:
                for by_resource in (self._endpoints, self._healthy_devices, self._unhealthy_devices, self._awaited):
                    by_resource.pop(name, None)
            # A pod that still has some of the devices shows their health in its status.
            # DIVERGES (fault of Go): when a resource is gone, the kubelet drops its list of devices unless a pod still
            # has some.
            # Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).GetCapacity: it keeps the list permanently.
            # Why: a plugin that registers under another name each time would leave a list each time.
            # Test: manager_test.py:test_devices_of_a_resource_that_is_gone
            for name in gone - self._pod_devices.devices().keys():
                self._all_devices.pop(name, None)
            in_vain = set[str]().union(*(self._waiting_pods.get(name, ()) for name in gone))
            allocatable = {name: len(ids) for name, ids in self._healthy_devices.items()}
            capacity = {name: count + len(self._unhealthy_devices.get(name, ())) for name, count in allocatable.items()}
        if gone:
            self._tell(in_vain)
            try:
                self._write_checkpoint()
            except OSError as err:
                # An old checkpoint names resources that are gone. After the next start they are found to be gone again.
                klog.error_s(err, "Failed to write checkpoint file")
        return _quantities(capacity), _quantities(allocatable), sorted(gone)

    def _is_gone_locked(self, resource_name: str) -> bool:
        info = self._endpoints.get(resource_name)
        return info is None or info.e.stop_grace_period_expired()

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        if not self._pod_devices.has_pod(attrs.pod.metadata.uid):
            return
        have = node.allocatable.scalar_resources
        for resource_name, devices in self._pod_devices.devices().items():
            have[resource_name] = max(have.get(resource_name, 0), len(devices))

    def should_reset_extended_resource_capacity(self) -> bool:
        return self._node_recreated

    def pods(self) -> set[str]:
        return self._pod_devices.pods()

    def get_allocatable_devices(self) -> ResourceDeviceInstances:
        with self._lock:
            return self._all_devices.filter(self._healthy_devices)

    def get_devices(self, pod_uid: str, container_name: str) -> ResourceDeviceInstances:
        return self._pod_devices.get_container_devices(pod_uid, container_name)

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        for container in status.container_statuses:
            given = self._pod_devices.container_allocated_resources(pod.metadata.uid, container.name)
            for resource_name, ids in sorted(given.items()):
                shown = v1.ResourceStatus(name=resource_name, resources=self._health(resource_name, ids))
                others = [each for each in container.allocated_resources_status if each.name != resource_name]
                container.allocated_resources_status = [*others, shown]

    def _health(self, resource_name: str, ids: Iterable[str]) -> list[v1.ResourceHealth]:
        """Return the health of the devices; as in Go, a device that the plugin no longer lists counts as healthy."""
        with self._lock:
            known = self._all_devices.get(resource_name, {})
            unhealthy = {id for id in ids if id in known and known[id].health != api.HEALTHY}
        return [
            v1.ResourceHealth(
                resource_id=id,
                health=v1.RESOURCE_HEALTH_STATUS_UNHEALTHY if id in unhealthy else v1.RESOURCE_HEALTH_STATUS_HEALTHY,
            )
            for id in sorted(ids)
        ]

    # ---- The checkpoint ----

    def _write_checkpoint(self) -> None:
        """Write the checkpoint. Raise OSError."""
        with self._checkpoint_lock:
            with self._lock:
                registered = {name: sorted(ids) for name, ids in self._healthy_devices.items()}
            data = checkpoint.Data(self._pod_devices.to_checkpoint_data(), registered)
            try:
                self._checkpoint_manager.create_checkpoint(KUBELET_DEVICE_MANAGER_CHECKPOINT, data)
            except OSError as err:
                path = f'"{KUBELET_DEVICE_MANAGER_CHECKPOINT}"'
                raise OSError(f"failed to write checkpoint file {path}: {err}") from err
        klog.v(4).info_s("Checkpoint file written", checkpoint=KUBELET_DEVICE_MANAGER_CHECKPOINT)

    def _read_checkpoint(self) -> None:
        """Restore the earlier allocations, and expect the plugins to return.

        Raise ValueError for a corrupt file, and OSError for a file that cannot be opened now.

        DIVERGES (safer): if the checkpoint cannot be opened, for example for lack of a file descriptor, the kubelet
        allocates no devices until it can.
        Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).Start: it continues as if there were no checkpoint.
        Why: the kubelet would allocate devices of running containers a second time.
        Test: manager_test.py:test_nothing_is_given_before_the_checkpoint_can_be_looked_at
        """
        data = checkpoint.Data()
        try:
            self._checkpoint_manager.get_checkpoint(KUBELET_DEVICE_MANAGER_CHECKPOINT, data)
        except checkpointmanager.errors.ErrCheckpointNotFound:
            klog.v(2).info_s("No checkpoint of devices", checkpoint=KUBELET_DEVICE_MANAGER_CHECKPOINT)
            try:
                # The file tells the next kubelet that the node is not new.
                self._write_checkpoint()
            except OSError as err:
                klog.error_s(err, "Failed to write checkpoint file")
            return
        entries, registered = data.get_data()
        self._pod_devices.from_checkpoint_data(entries)
        with self._lock:
            for resource_name in registered:
                self._healthy_devices[resource_name] = set()
                self._unhealthy_devices[resource_name] = set()
                self._endpoints[resource_name] = EndpointInfo(EndpointImpl(resource_name, None, self._clock))
                self._awaited[resource_name] = self._clock.monotonic()
        klog.v(4).info_s("Read data from checkpoint file", checkpoint=KUBELET_DEVICE_MANAGER_CHECKPOINT)

    # ---- Allocation ----

    def update_allocated_devices(self) -> None:
        with self._lock:
            known = {key.pod_uid for key in (*self._allocations, *self._preferences)}
            known |= self._pod_devices.pods().union(*self._waiting_pods.values())
        # DIVERGES (fault of Go): the kubelet first lists the pods that have devices, and then asks which pods are
        # active.
        # Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).UpdateAllocatedDevices: it does the two in the
        # other order.
        # Why: a pod that is admitted between the two would lose its devices at once.
        # Test: manager_test.py:test_pod_that_is_admitted_while_others_are_looked_for_that_have_ended
        inactive = known - {pod.metadata.uid for pod in self._active_pods()}
        # DIVERGES (fault of Go): a pod keeps its devices as long as one of its containers may run.
        # Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).UpdateAllocatedDevices: it releases the devices of
        # any pod that is not active, even one that was deleted by force, or while the kubelet was down.
        # Why: two containers would use the same device until the older one has been killed.
        # Test: manager_test.py:test_devices_of_a_pod_that_is_ending
        gone = {uid for uid in inactive if not self._could_run(types.UID(uid))}
        if not gone or not self._sources_ready():
            return
        klog.v(3).info_s("Pods to be removed", podUIDs=sorted(gone))
        with self._lock:
            for calls in (self._allocations, self._preferences):
                for key in [key for key in calls if key.pod_uid in gone]:
                    del calls[key]
            for name, waiting in list(self._waiting_pods.items()):
                waiting -= gone
                if not waiting:
                    del self._waiting_pods[name]
        self._pod_devices.delete(gone)

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Allocate the container's devices. Callers must pass a pod's init containers first.

        Raise DevicesAwaitedError, CheckpointWriteError, or the error that rules the allocation out. Devices that were
        allocated before an error are released when the pod ends.
        """
        with self._allocation_lock:
            reusable = self._reusable_devices(pod.metadata.uid)
            self._allocate_container_resources(pod, container, reusable)
            given = self._pod_devices.container_allocated_resources(pod.metadata.uid, container.name)
            if not given:
                # Return early for the common case: a pod may have thousands of containers, and the loops below search
                # them all.
                return
            init = next((each for each in pod.spec.init_containers if each.name == container.name), None)
            with self._lock:
                for resource_name, devices in given.items():
                    of_resource = reusable.setdefault(resource_name, set())
                    if init is not None and not podutil.is_restartable_init_container(init):
                        of_resource |= devices
                    else:
                        # This container keeps its devices for the life of the pod.
                        of_resource -= devices

    def _reusable_devices(self, pod_uid: str) -> dict[str, set[str]]:
        with self._lock:
            if self._devices_to_reuse[0] != pod_uid:
                self._devices_to_reuse = (pod_uid, {})
            return self._devices_to_reuse[1]

    def _allocate_container_resources(
        self, pod: v1.Pod, container: v1.Container, reusable: dict[str, set[str]]
    ) -> None:
        allocated_devices_updated = False
        try:
            # Extended resources cannot be overcommitted, so a container's request equals its limit.
            for resource_name, quantity in container.resources.limits.items():
                if features.feature_gate.enabled(features.DRA_EXTENDED_RESOURCE) and _is_dra_extended_resource(
                    pod, container.name, resource_name
                ):
                    klog.v(3).info_s(
                        "Skipping allocation for DRA-backed extended resource",
                        resourceName=resource_name,
                        pod=klog.kobj(pod),
                        containerName=container.name,
                    )
                    continue
                if not self._is_device_plugin_resource(resource_name):
                    continue
                if not allocated_devices_updated:
                    self.update_allocated_devices()
                    allocated_devices_updated = True
                reuse = reusable.get(resource_name, set())
                if self._allocate_resource(pod, container, resource_name, quantity.value(), reuse):
                    self._is_checkpoint_old = True
        finally:
            # This includes a container that now waits for another resource.
            if allocated_devices_updated and self._is_checkpoint_old:
                self._write_allocations()

    def _write_allocations(self) -> None:
        """Write the checkpoint. Raise CheckpointWriteError; the next allocation tries again."""
        try:
            self._write_checkpoint()
        except OSError as err:
            raise CheckpointWriteError(str(err)) from err
        self._is_checkpoint_old = False

    def _allocate_resource(
        self, pod: v1.Pod, container: v1.Container, resource_name: str, required: int, reusable: set[str]
    ) -> bool:
        """Report whether the container was allocated any device."""
        key = _Container(pod.metadata.uid, container.name, resource_name)
        with self._lock:
            allocation, patience = self._allocations.get(key), 0.0
        if allocation is None:
            devices = self._devices_to_allocate(pod, key, required, reusable)
            if not devices:
                return False
            patience = self._patience(resource_name)
            allocation = self._begin_allocation(pod, key, devices)
        self._finish_allocation(key, allocation, patience)
        return True

    def _patience(self, resource_name: str) -> float:
        """Return the time, in seconds, to wait for a response; 0 if the plugin already has other calls pending."""
        with self._lock:
            allocations = [each.call for key, each in self._allocations.items() if key.resource_name == resource_name]
            preferences = [call for key, call in self._preferences.items() if key.resource_name == resource_name]
        answered = all(call.done() for call in allocations) and all(call.done() for call in preferences)
        return _PATIENCE if answered else 0.0

    def _begin_allocation(self, pod: v1.Pod, key: _Container, devices: set[str]) -> _Allocation:
        """Have the plugin allocate the devices. No other container gets them meanwhile."""
        with self._lock:
            info = self._endpoints.get(key.resource_name)
        if info is None:
            raise AllocationError(f"unknown Device Plugin {key.resource_name}")
        klog.v(4).info_s(
            "Making allocation request for device plugin",
            devices=sorted(devices),
            resourceName=key.resource_name,
            pod=klog.kobj(pod),
            containerName=key.container_name,
        )
        allocation = _Allocation(devices, info.e.allocate(devices), self._clock.monotonic())
        with self._lock:
            self._allocations[key] = allocation
        return allocation

    def _finish_allocation(self, key: _Container, allocation: _Allocation, patience: float) -> None:
        """Assign the devices to the container when the plugin responds.

        Raise DevicesAwaitedError if that takes long.

        """
        try:
            response = self._result(key, allocation.call, patience, "allocate devices")
        except DevicesAwaitedError:
            raise
        except Exception:
            self._end_allocation(key, allocation)
            raise
        if not response.container_responses:
            self._end_allocation(key, allocation)
            raise AllocationError(f"no containers return in allocation response of device plugin {key.resource_name}")
        devices = self._by_numa_node(key.resource_name, allocation.devices)
        self._pod_devices.insert(*key, devices, response.container_responses[0])
        self._end_allocation(key, allocation)

    def _result(self, key: _Container, call: Future[_Answer], patience: float, what: str) -> _Answer:
        """Return the plugin's response.

        Raise DevicesAwaitedError if the response takes longer than `patience`, and have the pod synced when it arrives.

        DIVERGES (safer): a pod whose plugin does not respond within a second waits, and others are admitted meanwhile.
        Go: pkg/kubelet/cm/devicemanager/endpoint.go, (*endpointImpl).allocate: no other pod is admitted until then.
        Why: one slow plugin would delay every pod of the node.
        Test: manager_test.py:test_plugin_that_takes_its_time
        """
        try:
            return call.result(patience)
        except TimeoutError:
            call.add_done_callback(lambda _: self._tell({key.pod_uid}))
            raise DevicesAwaitedError(f"waits for the device plugin of {key.resource_name} to {what}") from None

    def _tell(self, pod_uids: set[str]) -> None:
        """Have the pods synced. If the channel is full, their next periodic sync comes soon enough."""
        if pod_uids and not self._updates.try_send(Update(tuple(sorted(pod_uids)))):
            err = queue.Full("device update channel is full")
            klog.error_s(err, "discard pods info", podsToUpdate=sorted(pod_uids))

    def _end_allocation(self, key: _Container, allocation: _Allocation) -> None:
        with self._lock:
            self._allocations.pop(key, None)
        seconds = self._clock.monotonic() - allocation.start
        metrics.DEVICE_PLUGIN_ALLOCATION_DURATION.labels(key.resource_name).observe(seconds)

    def _devices_in_use(self, resource_name: str) -> set[str]:
        """Return the resource's devices that a container has, or that are being allocated."""
        with self._lock:
            going_on = list(self._allocations.items())
        allocations = (each.devices for key, each in going_on if key.resource_name == resource_name)
        return self._pod_devices.devices().get(resource_name, set()).union(*allocations)

    def _by_numa_node(self, resource_name: str, devices: Iterable[str]) -> checkpoint.DevicesPerNUMA:
        by_node = checkpoint.DevicesPerNUMA()
        with self._lock:
            known = self._all_devices.get(resource_name, {})
            for id in sorted(devices):
                nodes = get_numa_node_ids(known[id]) if id in known else []
                for node in nodes or [NODE_WITHOUT_TOPOLOGY]:
                    by_node.setdefault(node, []).append(id)
        return by_node

    def _devices_to_allocate(self, pod: v1.Pod, key: _Container, required: int, reusable: set[str]) -> set[str]:
        """Return the devices that the plugin must allocate; none if the container already has them, or needs none.

        Raise DevicesAwaitedError, AllocationError, or the plugin's error when the manager requests its preference.
        """
        pod_uid, container_name, resource_name = key
        before = self._pod_devices.container_devices(*key)
        log = {"resourceName": resource_name, "podUID": pod_uid, "containerName": container_name}
        if before is not None:
            klog.v(3).info_s("Found pre-allocated devices for resource on pod", **log, devices=sorted(before))
            if len(before) != required:
                raise AllocationError(
                    f'pod "{pod_uid}" container "{container_name}" changed request for resource "{resource_name}" '
                    f"from {len(before)} to {required}"
                )
        # Unless all sources are ready, the kubelet has just started. A container that runs at that time has its
        # devices, although its plugin may not have returned yet. After a reboot of the node no container runs.
        if not self._sources_ready() and self._has_got_its_devices(pod, container_name):
            klog.v(3).info_s("Container detected running, nothing to do", deviceNumber=required, **log)
            return set()
        klog.v(3).info_s("Need devices to allocate for pod", deviceNumber=required, **log)
        # Check the health first, also for a container that already has its devices. Otherwise its pod would be admitted
        # after a reboot of the node before the plugin has registered (upstream issue 109595).
        healthy = self._require_healthy(pod_uid, resource_name, before or set())
        if before is not None or required == 0:
            klog.v(3).info_s("No devices needed, nothing to do", deviceNumber=0, **log)
            return set()
        chosen = set(sorted(reusable)[:required])
        if len(chosen) == required:
            return chosen
        available = healthy - self._devices_in_use(resource_name)
        if len(available) < required - len(chosen):
            raise AllocationError(
                f"requested number of devices unavailable for {resource_name}. "
                f"Requested: {required - len(chosen)}, Available: {len(available)}"
            )
        return self._choose(key, required, chosen, available)

    def _require_healthy(self, pod_uid: str, resource_name: str, before: set[str]) -> set[str]:
        """Return the resource's healthy devices.

        Raise an error if there are none, or if a device of `before` is not healthy.
        """
        self._require_plugin(pod_uid, resource_name)
        with self._lock:
            healthy = set(self._healthy_devices.get(resource_name, set()))
            registered = resource_name in self._healthy_devices
        if not registered:
            raise AllocationError(f"cannot allocate unregistered device {resource_name}")
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource_name}")
        if not before <= healthy:
            raise AllocationError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource_name}"
            )
        return healthy

    def _require_plugin(self, pod_uid: str, resource_name: str) -> None:
        """Raise DevicesAwaitedError while the resource's plugin is expected to return."""
        if not self._await_plugins:
            return
        with self._lock:
            awaited_since = self._awaited.get(resource_name)
            end = -math.inf if awaited_since is None else awaited_since + ENDPOINT_STOP_GRACE_PERIOD
            if self._healthy_devices.get(resource_name) or self._clock.monotonic() > end:
                return
            self._waiting_pods.setdefault(resource_name, set()).add(pod_uid)
        minutes = ENDPOINT_STOP_GRACE_PERIOD / 60
        raise DevicesAwaitedError(f"waits for the device plugin of {resource_name}, for {minutes:.0f} minutes at most")

    def _choose(self, key: _Container, required: int, chosen: set[str], available: set[str]) -> set[str]:
        """Add devices to `chosen`, from the container's preferred NUMA nodes as far as possible.

        The manager requests the plugin's preference only if there is a choice.
        """
        aligned, unaligned, no_affinity = self._filter_by_affinity(*key, available)
        missing = required - len(chosen)
        if missing < len(aligned):
            candidates, fallback = aligned, [aligned]
        else:
            chosen, missing = chosen | aligned, missing - len(aligned)
            candidates, fallback = available, [unaligned, no_affinity]
        if missing == 0:
            return chosen
        preferred = self._call_get_preferred_allocation_if_available(key, candidates | chosen, chosen, required)
        for source in (preferred & candidates, *fallback):
            more = sorted(source - chosen)[: required - len(chosen)]
            chosen = chosen | set(more)
        return chosen

    def _call_get_preferred_allocation_if_available(
        self, key: _Container, available: set[str], must_include: set[str], size: int
    ) -> set[str]:
        """Return the plugin's preferred devices.

        If the pod had to wait for the response, other containers may have the devices by now.
        """
        resource_name = key.resource_name
        with self._lock:
            info = self._endpoints.get(resource_name)
            call, patience = self._preferences.get(key), 0.0
        if info is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {resource_name}")
        if info.opts is None or not info.opts.get_preferred_allocation_available:
            klog.v(5).info_s("Plugin options indicate to skip GetPreferredAllocation", resourceName=resource_name)
            return set()
        try:
            if call is None:
                klog.v(4).info_s("Issuing a GetPreferredAllocation call for container", resourceName=resource_name)
                patience = self._patience(resource_name)
                call = info.e.get_preferred_allocation(available, must_include, size)
                with self._lock:
                    self._preferences[key] = call
            response = self._result(key, call, patience, "say which devices it prefers")
        except DevicesAwaitedError:
            raise
        except Exception as err:
            # Whatever error a plugin causes, the container must not start, and its pod must show the reason.
            self._forget_preference(key)
            raise AllocationError(f"device plugin GetPreferredAllocation rpc failed with err: {err}") from err
        self._forget_preference(key)
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    def _forget_preference(self, key: _Container) -> None:
        with self._lock:
            self._preferences.pop(key, None)

    def _filter_by_affinity(
        self, pod_uid: str, container_name: str, resource_name: str, available: set[str]
    ) -> tuple[set[str], set[str], set[str]]:
        """Return the devices on the container's preferred nodes, those on other nodes, and those without a node."""
        affinity = self._topology_affinity_store.get_affinity(pod_uid, container_name).numa_node_affinity
        with self._lock:
            devices = self._all_devices.get(resource_name, {})
            nodes = {id: get_numa_node_ids(devices[id]) for id in available if id in devices}
            has_alignment = device_has_topology_alignment(devices)
        if affinity is None or not has_alignment:
            return set(), set(), available
        aligned = {id for id in available if affinity.any_set(nodes.get(id, []))}
        no_affinity = {id for id in available if not nodes.get(id)}
        return aligned, available - aligned - no_affinity, no_affinity

    def _is_device_plugin_resource(self, resource_name: str) -> bool:
        """Report whether the resource belongs to a plugin, or did when a pod got it or began to wait for it."""
        with self._lock:
            if resource_name in self._healthy_devices or resource_name in self._waiting_pods:
                return True
        # This check must be fast: it runs for every resource of every container, and a pod may have thousands.
        return self._pod_devices.has_resource(resource_name)

    def _has_got_its_devices(self, pod: v1.Pod, container_name: str) -> bool:
        """Report whether the container ran when the kubelet started, or had already initialized its pod.

        DIVERGES (fault of Go): after a restart of the kubelet, an init container of a running pod needs no plugin.
        Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).devicesToAllocate: it needs its plugin, unless the
        init container itself runs.
        Why: a running pod, which has all its devices, would be rejected because its plugin has not returned yet.
        Test: manager_test.py:test_init_container_of_a_pod_that_runs
        """
        uid = pod.metadata.uid
        if self._is_container_already_running(uid, container_name):
            return True
        return any(
            init.name == container_name and not podutil.is_restartable_init_container(init)
            for init in pod.spec.init_containers
        ) and any(self._is_container_already_running(uid, container.name) for container in pod.spec.containers)

    def _is_container_already_running(self, pod_uid: str, container_name: str) -> bool:
        """Report whether the container ran when the kubelet started. A restarted container has several IDs.

        If the runtime was down at that time, no container counts as running, and the kubelet may reject pods that run
        (upstream issue 118559).
        """
        ref = ContainerRef(pod_uid, container_name)
        running = ref in self._running_containers
        if not running:
            known = ref in self._initial_containers
            message = f"Container {'found in map but not in running set' if known else 'not found in the initial map'}"
            klog.v(4).info_s(message, podUID=pod_uid, containerName=container_name)
        return running

    # ---- The start of a container ----

    def get_device_run_container_options(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> DeviceRunContainerOptions | None:
        uid, needs_re_allocate = pod.metadata.uid, False
        for resource_name, quantity in container.resources.limits.items():
            if not self._is_device_plugin_resource(resource_name) or quantity.is_zero():
                continue
            self._call_pre_start_container_if_needed(uid, container.name, resource_name)
            if not any(active.metadata.uid == uid for active in self._active_pods()):
                klog.v(5).info_s(
                    "Pod deleted from activePods, skip to reAllocate",
                    pod=klog.kobj(pod),
                    podUID=uid,
                    containerName=container.name,
                )
                continue
            if self._pod_devices.container_devices(uid, container.name, resource_name) is None:
                # The plugin was not known yet when the pod was admitted.
                needs_re_allocate = True
        if needs_re_allocate:
            klog.v(2).info_s(
                "Needs to re-allocate device plugin resources for pod",
                pod=klog.kobj(pod),
                containerName=container.name,
            )
            self.allocate(pod, container)
        return self._pod_devices.device_run_container_options(uid, container.name)

    def _call_pre_start_container_if_needed(self, pod_uid: str, container_name: str, resource_name: str) -> None:
        with self._lock:
            info = self._endpoints.get(resource_name)
        if info is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {resource_name}")
        if info.opts is None or not info.opts.pre_start_required:
            message = "Plugin options indicate to skip PreStartContainer for resource"
            klog.v(5).info_s(message, resourceName=resource_name)
            return
        devices = self._pod_devices.container_devices(pod_uid, container_name, resource_name)
        if devices is None:
            raise AllocationError(
                f"no devices found allocated in local cache for pod {pod_uid}, container {container_name}, "
                f"resource {resource_name}"
            )
        klog.v(4).info_s("Issuing a PreStartContainer call for container", containerName=container_name, podUID=pod_uid)
        try:
            info.e.pre_start_container(devices)
        except Exception as err:
            # As for GetPreferredAllocation, any error of the plugin keeps the container from starting.
            raise AllocationError(f"device plugin PreStartContainer rpc failed with err: {err}") from err

    # ---- Hints for the topology manager.  Go: topology_hints.go ----

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> topologymanager.Hints:
        requests = self._device_requests(container.resources.limits)
        if requests:
            self.update_allocated_devices()
        hints: topologymanager.Hints = {}
        for resource_name, requested in requests.items():
            key = _Container(pod.metadata.uid, container.name, resource_name)
            allocated = self._pod_devices.container_devices(*key)
            with self._lock:
                reuse_pod, reusable = self._devices_to_reuse
                reuse = set(reusable.get(resource_name, ())) if reuse_pod == key.pod_uid else set()
                if key in self._allocations:
                    allocated = self._allocations[key].devices
            hints[resource_name] = self._hints(pod, resource_name, requested, allocated or set(), reuse)
        return hints

    def get_pod_topology_hints(self, pod: v1.Pod) -> topologymanager.Hints:
        self.update_allocated_devices()
        options = resourcehelper.PodResourcesOptions(exclude_overhead=True)
        hints: topologymanager.Hints = {}
        for resource_name, requested in self._device_requests(resourcehelper.pod_limits(pod, options)).items():
            allocated = self._pod_devices.pod_devices(pod.metadata.uid, resource_name)
            with self._lock:
                for key, allocation in self._allocations.items():
                    if (key.pod_uid, key.resource_name) == (pod.metadata.uid, resource_name):
                        allocated |= allocation.devices
            hints[resource_name] = self._hints(pod, resource_name, requested, allocated, set())
        return hints

    def _device_requests(self, limits: dict[str, apiresource.Quantity]) -> dict[str, int]:
        return {name: limit.value() for name, limit in limits.items() if self._is_device_plugin_resource(name)}

    def _hints(
        self, pod: v1.Pod, resource_name: str, requested: int, allocated: set[str], reusable: set[str]
    ) -> list[topologymanager.TopologyHint] | None:
        """Return the possible placements of the devices.

        None means that the placement does not matter; an empty list means that too few devices are available. Raise
        DevicesAwaitedError.
        """
        if not allocated:
            # Wait for the plugin before other managers allocate resources to the pod, and until the devices' NUMA nodes
            # are known.
            self._require_plugin(pod.metadata.uid, resource_name)
        with self._lock:
            devices = self._all_devices.get(resource_name, {})
            healthy = set(self._healthy_devices.get(resource_name, ()))
        log = {"resourceName": resource_name, "pod": klog.kobj(pod), "request": requested}
        if not device_has_topology_alignment(devices):
            klog.info_s("Resource does not have a topology preference", **log)
            return None
        if allocated:
            if len(allocated) != requested:
                message = "Resource already allocated to pod with different number than request"
                klog.info_s(message, **log, allocated=len(allocated))
                return []
            klog.info_s("Regenerating TopologyHints for resource already allocated to pod", **log)
            return generate_device_topology_hints(devices, allocated, set(), requested, self._numa_nodes)
        available = healthy - self._devices_in_use(resource_name)
        if len(available | reusable) < requested:
            message = "Unable to generate topology hints: requested number of devices unavailable"
            klog.info_s(message, **log, available=len(available | reusable))
            return []
        return generate_device_topology_hints(devices, available, reusable, requested, self._numa_nodes)


def _quantities(counts: dict[str, int]) -> dict[str, apiresource.Quantity]:
    return {name: apiresource.new_quantity(count) for name, count in counts.items()}


def _is_dra_extended_resource(pod: v1.Pod, container_name: str, resource_name: str) -> bool:
    """Report whether a DRA claim provides this resource, which has the name of a device plugin's resource."""
    claim_status = pod.status.extended_resource_claim_status
    return claim_status is not None and any(
        mapping.container_name == container_name and mapping.resource_name == resource_name
        for mapping in claim_status.request_mappings
    )
