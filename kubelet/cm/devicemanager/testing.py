"""Define plugins without sockets, and a device manager to test them with.

Go: pkg/kubelet/cm/devicemanager/manager_test.go (MockEndpoint, getTestManager)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kubelet import cadvisor
from kubelet.apis.deviceplugin import v1beta1 as pluginv1beta1
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.containermap import ContainerMap
from kubelet.cm.devicemanager.manager import ManagerImpl
from kubelet.cm.topologymanager import TopologyHint
from kubelet.cm.topologymanager import testing as topologymanagertesting
from kubelet.config.testing import FakeSourcesReady
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting


def device(id: str, *numa_nodes: int, healthy: bool = True) -> pluginapi.Device:
    """Return a device that is near these NUMA nodes."""
    made = pluginapi.Device(ID=id, health=pluginv1beta1.HEALTHY if healthy else pluginv1beta1.UNHEALTHY)
    for node in numa_nodes:
        made.topology.nodes.add(ID=node)
    return made


def response(
    devices: dict[str, str] | None = None,
    mounts: dict[str, str] | None = None,
    envs: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    cdi_devices: Iterable[str] = (),
) -> pluginapi.ContainerAllocateResponse:
    """Return a plugin's response.

    The maps hold paths on the host by path in the container, and variables and annotations by name.
    """
    made = pluginapi.ContainerAllocateResponse(envs=envs, annotations=annotations)
    for container_path, host_path in (devices or {}).items():
        made.devices.add(container_path=container_path, host_path=host_path, permissions="mrw")
    for container_path, host_path in (mounts or {}).items():
        made.mounts.add(container_path=container_path, host_path=host_path, read_only=True)
    for name in cdi_devices:
        made.cdi_devices.add(name=name)
    return made


def pod(
    uid: str = "pod",
    limits: dict[str, int] | None = None,
    containers: Iterable[v1.Container] | None = None,
    init_containers: Iterable[v1.Container] = (),
) -> v1.Pod:
    """Return a pod with these containers, or with one container "c" that has the limits."""
    spec = v1.PodSpec(
        containers=list(containers) if containers is not None else [container("c", limits)],
        init_containers=list(init_containers),
    )
    return v1.Pod(metadata=metav1.ObjectMeta(name=uid, namespace="ns", uid=types.UID(uid)), spec=spec)


def container(name: str, limits: dict[str, int] | None = None, restart_policy: str | None = None) -> v1.Container:
    quantities = {each: resource.new_quantity(count) for each, count in (limits or {}).items()}
    resources = v1.ResourceRequirements(limits=quantities, requests=dict(quantities))
    return v1.Container(name=name, resources=resources, restart_policy=restart_policy)


class FakeFuture(Future[Any]):
    """Represent a call with a known result, which arrives when the test says so."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._known = result
        # `patience` holds the timeouts of all waits for the result, in seconds.
        self.patience: list[float | None] = []

    def answer(self) -> None:
        if isinstance(self._known, Exception):
            self.set_exception(self._known)
        else:
            self.set_result(self._known)

    def result(self, timeout: float | None = None) -> Any:
        self.patience.append(timeout)
        return super().result(0)


class FakeDevicePlugin:
    """Implement plugin.DevicePlugin and its API. `calls` records the calls that change something."""

    def __init__(self, resource: str, options: pluginapi.DevicePluginOptions | None = None) -> None:
        self.resource = resource
        self.socket_path = f"/{resource}.sock"
        self.options = options or pluginapi.DevicePluginOptions()
        self.err: Exception | None = None
        # If set, this response replaces the result of `allocate`.
        self.answer: pluginapi.AllocateResponse | None = None
        self.preferred: Sequence[str] = ()
        self.allocate: Callable[[Sequence[str]], pluginapi.ContainerAllocateResponse] = lambda ids: response(
            envs={f"{resource.rpartition('/')[2].upper()}": ",".join(ids)}
        )
        self.calls: list[str] = []
        self.hangs = False
        self.futures: list[FakeFuture] = []

    @property
    def api(self) -> Any:
        return self

    def GetDevicePluginOptions(self, request: pluginapi.Empty, timeout: float) -> pluginapi.DevicePluginOptions:
        return self.options

    def begin(self, method: Any, request: Any, timeout: float) -> Any:
        return method(request)

    def GetPreferredAllocation(self, request: pluginapi.PreferredAllocationRequest) -> FakeFuture:
        asked = request.container_requests[0]
        available, included = " ".join(asked.available_deviceIDs), " ".join(asked.must_include_deviceIDs)
        self.calls.append(f"prefer {asked.allocation_size} of {available} with {included}".rstrip())
        answer = pluginapi.PreferredAllocationResponse()
        answer.container_responses.add(deviceIDs=self.preferred)
        return self._begin(answer)

    def Allocate(self, request: pluginapi.AllocateRequest) -> FakeFuture:
        ids = list(request.container_requests[0].devices_ids)
        self.calls.append(f"allocate {' '.join(ids)}")
        return self._begin(self.answer or pluginapi.AllocateResponse(container_responses=[self.allocate(ids)]))

    def _begin(self, answer: Any) -> FakeFuture:
        """Start a call. If `hangs` is set, the test supplies the result."""
        self.futures.append(FakeFuture(self.err or answer))
        if not self.hangs:
            self.futures[-1].answer()
        return self.futures[-1]

    def PreStartContainer(
        self, request: pluginapi.PreStartContainerRequest, timeout: float
    ) -> pluginapi.PreStartContainerResponse:
        self.calls.append(f"pre start {' '.join(request.devices_ids)}")
        if self.err is not None:
            raise self.err
        return pluginapi.PreStartContainerResponse()


class World:
    """Hold a manager below `directory` on a machine with this many NUMA nodes, and the active pods."""

    def __init__(self, directory: Path, numa_nodes: int = 2) -> None:
        self.directory = directory
        # The next manager uses this setting too.
        self.await_plugins = True
        self.clock = clocktesting.FakeClock()
        self.topology_manager = topologymanagertesting.FakeTopologyManager()
        self.numa_nodes = numa_nodes
        self.active_pods: list[v1.Pod] = []
        # `ending` holds the UIDs of terminating pods.
        self.ending: set[str] = set()
        self.sources = FakeSourcesReady()
        self.plugins: dict[str, FakeDevicePlugin] = {}
        self.manager = self._new_manager()

    def _new_manager(self) -> ManagerImpl:
        nodes = [cadvisor.Node(id=number) for number in range(self.numa_nodes)]
        manager = ManagerImpl(
            nodes,
            self.topology_manager,
            directory=str(self.directory / "device-plugins"),
            await_plugins=self.await_plugins,
            clock=self.clock,
        )
        # `start` would set these fields, but not every test needs the server that it starts.
        manager._active_pods = lambda: self.active_pods
        manager._could_run = self.ending.__contains__
        manager._sources_ready = self.sources.all_ready
        return manager

    def start(
        self, ctx: golang.Context, containers: ContainerMap | None = None, running: Iterable[str] = ()
    ) -> ManagerImpl:
        """Start a new kubelet and return its manager."""
        self.manager = self._new_manager()
        could_run = self.ending.__contains__
        containers = containers or ContainerMap()
        self.manager.start(ctx, lambda: self.active_pods, could_run, self.sources, containers, set(running))
        return self.manager

    def connect(
        self,
        resource: str,
        *devices: pluginapi.Device,
        options: pluginapi.DevicePluginOptions | None = None,
    ) -> FakeDevicePlugin:
        """Connect a plugin that lists these devices."""
        plugin = self.plugins[resource] = FakeDevicePlugin(resource, options)
        self.manager.plugin_connected(resource, plugin)
        self.tell(resource, *devices)
        return plugin

    def disconnect(self, resource: str) -> None:
        """Disconnect the resource's plugin."""
        self.manager.plugin_disconnected(resource, self.plugins[resource])

    def tell(self, resource: str, *devices: pluginapi.Device) -> None:
        """Have the resource's plugin list these devices."""
        self.manager.plugin_list_and_watch_receiver(resource, pluginapi.ListAndWatchResponse(devices=devices))

    def prefer_nodes(self, hint: TopologyHint) -> None:
        """Set the topology manager's hint for all containers."""
        self.topology_manager.hint = hint

    def allocate(self, pod: v1.Pod) -> None:
        """Admit all the pod's containers, init containers first. Raise the manager's errors."""
        if pod not in self.active_pods:
            self.active_pods.append(pod)
        for each in (*pod.spec.init_containers, *pod.spec.containers):
            self.manager.allocate(pod, each)

    def devices(self, pod: v1.Pod, container_name: str = "c") -> dict[str, set[str]]:
        """Return the IDs of the container's devices by resource."""
        found = self.manager.get_devices(pod.metadata.uid, container_name)
        return {resource: set(instances) for resource, instances in found.items()}

    def capacity(self) -> tuple[dict[str, int], dict[str, int], list[str]]:
        capacity, allocatable, gone = self.manager.get_capacity()
        counts = ({name: quantity.value() for name, quantity in each.items()} for each in (capacity, allocatable))
        return (*counts, gone)  # type: ignore[return-value]


class FakeListStream:
    """Yield lists of one device, whose ID is the list's number."""

    def __init__(self) -> None:
        self.numbers: golang.Channel[int] = golang.Channel(1000)
        # `asked` is the number of lists that the reader has requested.
        self.asked = 0
        self.err: Exception | None = None
        # `ended` says whether `end` has freed the stream.
        self.ended = False
        self._ctx, self.cancel = golang.with_cancel(golang.background())

    def __iter__(self) -> Iterator[pluginapi.ListAndWatchResponse]:
        while True:
            self.asked += 1
            taken = golang.select(self._ctx.done(), self.numbers).took(self.numbers)
            if self.err is not None:
                raise self.err
            if taken is None or not taken.ok:
                return
            yield pluginapi.ListAndWatchResponse(devices=[device(str(taken.value))])

    def end(self) -> None:
        self.ended = True

    def tell(self, numbers: range) -> None:
        for number in numbers:
            self.numbers.send(number)
