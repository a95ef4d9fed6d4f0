"""Run plugins of each kind in the test's process. Their calls fail as the test wants; see fake.Faults.

The plugins do the same work as the tests' drivers, which are separate processes. A call fails before or after it has
reached the plugin. The full name of a method identifies it, such as "csi.v1.Node/NodeStageVolume".
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
from csi_driver import services as csi_services
from csi_driver import volumes
from csi_driver.calls import CallLog
from csi_driver.faults import Faults as FaultFiles
from dra_driver import services as dra_services
from google.protobuf.descriptor import MethodDescriptor

from framework import csi, dra
from framework.cluster_node import ClusterMember
from framework.pods import Manifest
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.apis.deviceplugin.v1beta1 import api_pb2_grpc as pluginapi_grpc
from kubelet.apis.dra.v1 import api_pb2 as drapb
from kubelet.apis.dra.v1 import api_pb2_grpc as dra_grpc
from kubelet.apis.dra.v1beta1 import api_pb2 as drapbv1beta1
from kubelet.apis.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealth
from kubelet.apis.dra_health.v1alpha1 import api_pb2_grpc as health_grpc
from kubelet.apis.pluginregistration.v1 import api_pb2 as registerapi
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from kubelet.cm.devicemanager.plugin.v1beta1 import stub
from kubelet.cri import errors
from kubelet.cri.remote import fake
from pkg import golang
from pkg.csi_spec import csi_pb2, csi_pb2_grpc

# A call that hangs occupies a thread.
_THREADS = 100

# The kubelet calls these services of plugins. It does not call the Controller service of CSI, and it serves the device
# plugins' Registration service itself.
SERVICES = (
    csi_pb2.DESCRIPTOR.services_by_name["Identity"],
    csi_pb2.DESCRIPTOR.services_by_name["Node"],
    drapb.DESCRIPTOR.services_by_name["DRAPlugin"],
    drapbv1beta1.DESCRIPTOR.services_by_name["DRAPlugin"],
    drahealth.DESCRIPTOR.services_by_name["DRAResourceHealth"],
    pluginapi.DESCRIPTOR.services_by_name["DevicePlugin"],
    registerapi.DESCRIPTOR.services_by_name["Registration"],
)

# A Stream replaces the messages of a plugin's stream. Its arguments are these messages, and a context that ends with
# the fault.
Stream = Callable[[Iterator[Any], golang.Context], Iterator[Any]]
AddServices = Callable[[grpc.Server], None]


def methods() -> list[MethodDescriptor]:
    """Return all plugin methods that a kubelet may call."""
    return [method for service in SERVICES for method in service.methods]


def full_name(method: MethodDescriptor) -> str:
    return f"{method.containing_service.full_name}/{method.name}"


@dataclass
class StreamFault:
    """Describe a fault that changes all streams of a method that begin while the fault exists."""

    method: str
    change: Stream
    ctx: golang.Context
    remove: Callable[[], None]
    hits: int = field(default=0)


class Interceptor(grpc.ServerInterceptor):
    """Apply faults to the calls of a server.

    `stream_fault` is the fault that currently applies to streams. `given_up` counts, for each method, the calls whose
    caller did not wait for the response.
    """

    def __init__(self) -> None:
        self.given_up: Counter[str] = Counter()
        self.faults = fake.Faults([full_name(method) for method in methods()])
        self.stream_fault: StreamFault | None = None

    def change_stream(self, method: str, change: Stream) -> StreamFault:
        """Replace the messages of a method's streams until the fault is removed; then the streams end."""
        ctx, cancel = golang.with_cancel(golang.background())

        def remove() -> None:
            self.stream_fault = None
            cancel()

        self.stream_fault = StreamFault(method, change, ctx, remove)
        return self.stream_fault

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler, method = continuation(details), details.method.removeprefix("/")
        if handler is None:
            return None
        coding = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_stream is not None:
            streamed = self._streamed(method, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(streamed, *coding)
        return grpc.unary_unary_rpc_method_handler(self._answered(method, handler.unary_unary), *coding)

    def _answered(self, method: str, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def answered(request: Any, call: Any) -> Any:
            ctx = _context_of(call)
            try:
                self.faults.apply(ctx, method, request, tuple, _sleep)
                self._stop_if_given_up(ctx, method)
                response = self.faults.apply(ctx, method, request, tuple, _sleep, answer(request, call))
                self._stop_if_given_up(ctx, method)
                return response
            except errors.RemoteError as err:
                return call.abort(err.code, err.message)

        return answered

    def _stop_if_given_up(self, ctx: golang.Context, method: str) -> None:
        if ctx.err() is not None:
            self.given_up[method] += 1
            raise errors.RemoteError(grpc.StatusCode.CANCELLED, "the caller has given up")

    def _streamed(
        self, method: str, stream: Callable[[Any, Any], Iterator[Any]]
    ) -> Callable[[Any, Any], Iterator[Any]]:
        def streamed(request: Any, call: Any) -> Iterator[Any]:
            fault = self.stream_fault
            if fault is None or fault.method != method:
                yield from stream(request, call)
                return
            fault.hits += 1
            ctx, cancel = golang.with_cancel(fault.ctx)
            if not call.add_callback(cancel):
                cancel()
            try:
                yield from fault.change(stream(request, call), ctx)
            except errors.RemoteError as err:
                call.abort(err.code, err.message)

        return streamed


def _context_of(call: Any) -> golang.Context:
    ctx, cancel = golang.with_cancel(golang.background())
    if not call.add_callback(cancel):
        cancel()
    return ctx


def _sleep(ctx: golang.Context, seconds: float) -> None:
    ctx.wait(seconds)


class _Listener:
    """Serve gRPC on a socket. The server can be started and stopped repeatedly."""

    def __init__(self, socket: Path, add: AddServices, interceptor: Interceptor) -> None:
        self.socket = socket
        self._add = add
        self._interceptor = interceptor
        self._running: tuple[grpc.Server, futures.ThreadPoolExecutor] | None = None

    def start(self) -> None:
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        pool = futures.ThreadPoolExecutor(_THREADS, thread_name_prefix=self.socket.stem)
        server = grpc.server(pool, interceptors=[self._interceptor])
        self._add(server)
        server.add_insecure_port(f"unix://{self.socket}")
        server.start()
        self._running = server, pool

    def stop(self) -> None:
        """Cut all connections. If the server does not run, the call does nothing."""
        if self._running is None:
            return
        server, pool = self._running
        self._running = None
        self.socket.unlink(missing_ok=True)
        server.stop(None).wait()
        pool.shutdown(wait=False)


class FaultyPlugin(ABC):
    """Run a plugin within a `with` block, in which it serves and can be registered."""

    def __init__(self, name: str, listeners: Sequence[_Listener], interceptor: Interceptor) -> None:
        """Create the plugin; the kubelet finds it by the socket of the last listener."""
        self.name = name
        self.interceptor = interceptor
        self._listeners = listeners

    def __enter__(self) -> Self:
        for listener in self._listeners:
            listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in reversed(self._listeners):
            listener.stop()

    def register_again(self) -> None:
        """Make the kubelet discover the plugin again."""
        self._listeners[-1].stop()
        self._listeners[-1].start()

    @abstractmethod
    def equip(self, node: ClusterMember, manifest: Manifest) -> None:
        """Change the manifest of a pod, before the pod is created, so that the pod needs the plugin."""

    def allocate(self, node: ClusterMember, name: str) -> None:
        """Do what the scheduler does for the pod before it binds the pod. Most plugins need nothing."""
        return

    def holds(self, name: str) -> list[str]:
        """Return what the plugin has done for the pod and not undone."""
        return []


class CSI(FaultyPlugin):
    """Run a CSI driver. `kubelet_root` is the directory below which it mounts volumes."""

    def __init__(self, folder: Path, name: str, kubelet_root: Path, node: str) -> None:
        state = folder / name
        (state / "volumes").mkdir(parents=True)
        self.volumes = state / "volumes"
        settings = csi_services.Settings(name, state, node)
        handler = csi_services.Handler(CallLog(state / "calls.jsonl"), FaultFiles(state / "faults"))
        socket = kubelet_root / "plugins" / name / "csi.sock"

        def add(server: grpc.Server) -> None:
            csi_pb2_grpc.add_IdentityServicer_to_server(csi_services.Identity(settings, handler), server)
            csi_pb2_grpc.add_NodeServicer_to_server(csi_services.Node(settings, handler), server)

        def add_registration(server: grpc.Server) -> None:
            registration = csi_services.Registration(settings, socket, handler)
            registration_grpc.add_RegistrationServicer_to_server(registration, server)

        interceptor = Interceptor()
        registration = kubelet_root / "plugins_registry" / f"{name}-reg.sock"
        listeners = [_Listener(socket, add, interceptor), _Listener(registration, add_registration, interceptor)]
        super().__init__(name, listeners, interceptor)
        self._kubelet_root = kubelet_root

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for disk in self.volumes.glob("*/disk"):
            for device in reversed(csi.loop_devices(disk)):
                subprocess.run(["losetup", "--detach", device], check=False)

    def equip(self, node: ClusterMember, manifest: Manifest) -> None:
        """Add a volume with a file system and a block device to the pod."""
        name = manifest["metadata"]["name"]
        claims = {"data": name, "disk": f"{name}-disk"}
        for volume, claim in claims.items():
            csi.put_claimed(node.cluster, self.name, claim, block=volume == "disk")
        (main,) = manifest["spec"]["containers"]
        main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        main["volumeDevices"] = [{"name": "disk", "devicePath": "/dev/disk"}]
        manifest["spec"]["volumes"] = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()
        ]

    def holds(self, name: str) -> list[str]:
        mounts = [each for each in volumes.mount_points() if Path(each).is_relative_to(self._kubelet_root)]
        disk = self.volumes / f"{name}-disk" / "disk"
        return [*(each for each in mounts if name in each), *(csi.loop_devices(disk) if disk.exists() else [])]


class DRA(FaultyPlugin):
    """Run a DRA driver that serves these versions. `cdi` is the directory in which it describes prepared devices."""

    def __init__(self, folder: Path, name: str, kubelet_root: Path, node: str, services: Sequence[str]) -> None:
        state = folder / name
        self.cdi = state / "cdi"
        self.cdi.mkdir(parents=True)
        self._ended = threading.Event()
        log = CallLog(state / "calls.jsonl")
        work = dra_services.Work(name, node, state, self.cdi, log, FaultFiles(state / "faults"))
        socket = kubelet_root / "plugins" / name / "dra.sock"

        def add(server: grpc.Server) -> None:
            dra_grpc.add_DRAPluginServicer_to_server(dra_services.DRAPlugin(work), server)
            v1beta1_grpc.add_DRAPluginServicer_to_server(dra_services.V1Beta1(work), server)
            health_grpc.add_DRAResourceHealthServicer_to_server(dra_services.Health(work, self._ended), server)

        def add_registration(server: grpc.Server) -> None:
            registration = dra_services.Registration(work, socket, services)
            registration_grpc.add_RegistrationServicer_to_server(registration, server)

        interceptor = Interceptor()
        registration = kubelet_root / "plugins_registry" / f"{name}-reg.sock"
        listeners = [_Listener(socket, add, interceptor), _Listener(registration, add_registration, interceptor)]
        super().__init__(name, listeners, interceptor)

        self._state = state

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        super().__exit__()

    def equip(self, node: ClusterMember, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        dra.put_claim(node, name, self.name)
        dra.with_claims(manifest, mine=name)

    def allocate(self, node: ClusterMember, name: str) -> None:
        dra.allocate(node, name, [name], self.name)

    def holds(self, name: str) -> list[str]:
        prepared = [device["name"] for spec in self._specs() for device in spec["devices"]]
        return [each for each in prepared if each.endswith(f"-of-{name}")]

    def _specs(self) -> Iterator[Any]:
        for path in self.cdi.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # The driver may have just removed the file.
                yield json.loads(path.read_text())

    def tell_health(self, name: str) -> None:
        """Report the device of a pod's claim as healthy, and no other device."""
        unfinished = self._state / ".health.json"
        unfinished.write_text(json.dumps([{"device": f"of-{name}", "health": "HEALTHY"}]))
        unfinished.rename(self._state / "health.json")


class Device(FaultyPlugin):
    """Run a device plugin with a few devices of a resource."""

    def __init__(self, resource: str, kubelet_root: Path, devices: int) -> None:
        socket = kubelet_root / "plugins_registry" / f"{resource.replace('/', '-')}.sock"
        offered = [stub.device(f"d{number}") for number in range(devices)]
        service = stub.Stub(offered, socket, resource, pre_start_container=True, get_preferred_allocation=True)
        service.alloc_func = lambda request, devices: _allocated(request)

        def add(server: grpc.Server) -> None:
            pluginapi_grpc.add_DevicePluginServicer_to_server(service, server)
            registration_grpc.add_RegistrationServicer_to_server(service, server)

        interceptor = Interceptor()
        super().__init__(resource, [_Listener(socket, add, interceptor)], interceptor)

    def equip(self, node: ClusterMember, manifest: Manifest) -> None:
        (main,) = manifest["spec"]["containers"]
        main.setdefault("resources", {}).update(limits={self.name: 1}, requests={self.name: 1})


def _allocated(request: pluginapi.AllocateRequest) -> pluginapi.AllocateResponse:
    answer = pluginapi.AllocateResponse()
    for asked in request.container_requests:
        answer.container_responses.add(envs={"DEVICES": ",".join(asked.devices_ids)})
    return answer
