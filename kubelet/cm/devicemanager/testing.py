"""Plugins without a socket, and a device manager to try them with.

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
    """A device that is near to these nodes."""
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
    """What a plugin answers: paths on the host by those in the container, variables, names."""
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
    """A pod with these containers, or else with one, c, of the limits."""
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
    """A call whose result is known, and comes when the test wants."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._known = result
        # Seconds that were waited for it each time.
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
    """A plugin.DevicePlugin, and its own api. `calls` has what changes something."""

    def __init__(self, resource: str, options: pluginapi.DevicePluginOptions | None = None) -> None:
        self.resource = resource
        self.socket_path = f"/{resource}.sock"
        self.options = options or pluginapi.DevicePluginOptions()
        self.err: Exception | None = None
        # Instead of what `allocate` makes.
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
        """Begin a call. With `hangs` it is the test that answers it."""
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
    """A manager below `directory`, of a machine with so many NUMA nodes, and the pods that are active."""

    def __init__(self, directory: Path, numa_nodes: int = 2) -> None:
        self.directory = directory
        # Of the next manager, too.
        self.await_plugins = True
        self.clock = clocktesting.FakeClock()
        self.topology_manager = topologymanagertesting.FakeTopologyManager()
        self.numa_nodes = numa_nodes
        self.active_pods: list[v1.Pod] = []
        # Pods that are ending, by uid.
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
        # What start would tell; not every test needs its server.
        manager._active_pods = lambda: self.active_pods
        manager._could_run = self.ending.__contains__
        manager._sources_ready = self.sources.all_ready
        return manager

    def start(
        self, ctx: golang.Context, containers: ContainerMap | None = None, running: Iterable[str] = ()
    ) -> ManagerImpl:
        """A kubelet that is started now; returns its manager."""
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
        """A plugin comes, and tells of its devices."""
        plugin = self.plugins[resource] = FakeDevicePlugin(resource, options)
        self.manager.plugin_connected(resource, plugin)
        self.tell(resource, *devices)
        return plugin

    def disconnect(self, resource: str) -> None:
        """The resource's plugin goes."""
        self.manager.plugin_disconnected(resource, self.plugins[resource])

    def tell(self, resource: str, *devices: pluginapi.Device) -> None:
        """The resource's plugin tells of its devices."""
        self.manager.plugin_list_and_watch_receiver(resource, pluginapi.ListAndWatchResponse(devices=devices))

    def prefer_nodes(self, hint: TopologyHint) -> None:
        """What the topology manager says of all containers from now on."""
        self.topology_manager.hint = hint

    def allocate(self, pod: v1.Pod) -> None:
        """Admit the pod: all its containers, init containers first. Raises as the manager."""
        if pod not in self.active_pods:
            self.active_pods.append(pod)
        for each in (*pod.spec.init_containers, *pod.spec.containers):
            self.manager.allocate(pod, each)

    def devices(self, pod: v1.Pod, container_name: str = "c") -> dict[str, set[str]]:
        """The ids that the container has, by resource."""
        found = self.manager.get_devices(pod.metadata.uid, container_name)
        return {resource: set(instances) for resource, instances in found.items()}

    def capacity(self) -> tuple[dict[str, int], dict[str, int], list[str]]:
        capacity, allocatable, gone = self.manager.get_capacity()
        counts = ({name: quantity.value() for name, quantity in each.items()} for each in (capacity, allocatable))
        return (*counts, gone)  # type: ignore[return-value]


class FakeListStream:
    """Tells lists of one device, whose id is the list's number."""

    def __init__(self) -> None:
        self.numbers: golang.Channel[int] = golang.Channel(1000)
        # How many lists were asked for.
        self.asked = 0
        self.err: Exception | None = None
        # Whether nothing is left of it.
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
