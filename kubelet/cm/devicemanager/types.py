"""Define what the container manager needs from the device manager.

Go: pkg/kubelet/cm/devicemanager/types.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kubelet import container as kubecontainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubelet import config, lifecycle
    from kubelet.cm import topologymanager
    from kubelet.cm.containermap import ContainerMap, CouldRunFunc
    from kubelet.cm.devicemanager.pod_devices import ResourceDeviceInstances
    from kubelet.cm.resourceupdates import Update
    from kubelet.pluginmanager import cache
    from pkg import golang
    from pkg.api.core import v1
    from pkg.apimachinery.api.resource import Quantity
    from pkg.apiserver.server import healthz
    from pkg.scheduler import framework

# ENDPOINT_STOP_GRACE_PERIOD is the time, in seconds, for which a resource stays after its plugin is gone, and for which
# pods wait for the plugin. It covers the time until a change of the node's capacity takes effect.
ENDPOINT_STOP_GRACE_PERIOD = 300.0
# KUBELET_DEVICE_MANAGER_CHECKPOINT is the name of the checkpoint's file.
KUBELET_DEVICE_MANAGER_CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(slots=True)
class DeviceRunContainerOptions:
    """Hold what a container needs to use its devices."""

    envs: list[kubecontainer.EnvVar] = field(default_factory=list)
    mounts: list[kubecontainer.Mount] = field(default_factory=list)
    devices: list[kubecontainer.DeviceInfo] = field(default_factory=list)
    annotations: list[kubecontainer.Annotation] = field(default_factory=list)
    cdi_devices: list[kubecontainer.CDIDevice] = field(default_factory=list)


class Manager(Protocol):
    """Define operations on the devices of all plugins.

    All methods are thread-safe; allocations run one after the other.
    """

    def start(
        self,
        ctx: golang.Context,
        active_pods: Callable[[], list[v1.Pod]],
        could_run: CouldRunFunc,
        sources_ready: config.SourcesReady,
        initial_containers: ContainerMap,
        initial_container_running_set: set[str],
    ) -> None:
        """Restore earlier allocations, and let plugins register until `ctx` ends. Raise OSError."""
        ...

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Allocate the container's devices. Raise an error that gives the reason if that is impossible."""
        ...

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        """Raise the node's allocatable to at least the devices that pods have, even if their plugin is gone."""
        ...

    def stop(self) -> None: ...

    def get_device_run_container_options(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> DeviceRunContainerOptions | None:
        """Return what the container needs to use its devices, or None. Raise an error if that fails."""
        ...

    def get_capacity(self) -> tuple[dict[str, Quantity], dict[str, Quantity], list[str]]:
        """Return the numbers of all and of healthy devices by resource, and the resources gone since the last call.

        After a restart of the kubelet the numbers are 0 until the plugins return. update_plugin_resources compensates
        for that at the admission of pods that already have devices.
        """
        ...

    def get_watcher_handler(self) -> cache.PluginHandler: ...

    def get_health_checker(self) -> healthz.HealthChecker: ...

    def get_devices(self, pod_uid: str, container_name: str) -> ResourceDeviceInstances:
        """Return the container's devices."""
        ...

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        """Write the health of the containers' devices into the pod's status."""
        ...

    def pods(self) -> set[str]:
        """Return the UIDs of the pods that have devices."""
        ...

    def get_allocatable_devices(self) -> ResourceDeviceInstances:
        """Return all healthy devices."""
        ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Report whether the node is new, which means that it had no checkpoint."""
        ...

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> topologymanager.Hints: ...

    def get_pod_topology_hints(self, pod: v1.Pod) -> topologymanager.Hints: ...

    def update_allocated_devices(self) -> None:
        """Release the devices of pods that have ended."""
        ...

    def updates(self) -> golang.Channel[Update]:
        """Return the channel that announces the pods whose devices changed their health."""
        ...
