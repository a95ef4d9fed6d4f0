"""What the container manager asks of the device manager.

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

# Seconds that a resource is still one of the node's after its plugin has gone, and that pods wait for it.
ENDPOINT_STOP_GRACE_PERIOD = 300.0
# The checkpoint's file.
KUBELET_DEVICE_MANAGER_CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(slots=True)
class DeviceRunContainerOptions:
    """What a container needs to use its devices."""

    envs: list[kubecontainer.EnvVar] = field(default_factory=list)
    mounts: list[kubecontainer.Mount] = field(default_factory=list)
    devices: list[kubecontainer.DeviceInfo] = field(default_factory=list)
    annotations: list[kubecontainer.Annotation] = field(default_factory=list)
    cdi_devices: list[kubecontainer.CDIDevice] = field(default_factory=list)


class Manager(Protocol):
    """All device plugins of the node. Safe from any thread; allocations come one after another."""

    def start(
        self,
        ctx: golang.Context,
        active_pods: Callable[[], list[v1.Pod]],
        could_run: CouldRunFunc,
        sources_ready: config.SourcesReady,
        initial_containers: ContainerMap,
        initial_container_running_set: set[str],
    ) -> None:
        """Go on with what was given to pods, and let plugins register until ctx ends. Raises OSError."""
        ...

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Give the container its devices. Raises why that cannot be."""
        ...

    def update_plugin_resources(self, node: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        """Count as the node's what pods have, though the plugin be gone."""
        ...

    def stop(self) -> None: ...

    def get_device_run_container_options(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container
    ) -> DeviceRunContainerOptions | None:
        """What the container needs to use its devices; None if it has none. Raises why it cannot have it."""
        ...

    def get_capacity(self) -> tuple[dict[str, Quantity], dict[str, Quantity], list[str]]:
        """All devices by resource, the healthy ones, and the resources that are gone since the last call."""
        ...

    def get_watcher_handler(self) -> cache.PluginHandler: ...

    def get_health_checker(self) -> healthz.HealthChecker: ...

    def get_devices(self, pod_uid: str, container_name: str) -> ResourceDeviceInstances:
        """What the container has."""
        ...

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        """Write into the status how the containers' devices are."""
        ...

    def pods(self) -> set[str]:
        """Of those that have devices, the uids."""
        ...

    def get_allocatable_devices(self) -> ResourceDeviceInstances:
        """All healthy devices."""
        ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Whether the node was made anew, as there is no checkpoint."""
        ...

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> topologymanager.Hints: ...

    def get_pod_topology_hints(self, pod: v1.Pod) -> topologymanager.Hints: ...

    def update_allocated_devices(self) -> None:
        """Take back the devices of pods that have ended."""
        ...

    def updates(self) -> golang.Channel[Update]:
        """Where pods are named whose devices' health has changed."""
        ...
