"""Define a device plugin with configurable responses, for tests.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/stub.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path

import grpc

from kubelet.apis.deviceplugin import v1beta1 as api
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.apis.deviceplugin.v1beta1 import api_pb2_grpc
from kubelet.apis.pluginregistration import v1 as watcherapi
from kubelet.apis.pluginregistration.v1 import api_pb2 as registerapi
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registerapi_grpc

# This timeout is in seconds.
_DEADLINE = 10.0
_OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]

# The functions receive a request and the devices by ID.
AllocFunc = Callable[[pluginapi.AllocateRequest, Mapping[str, pluginapi.Device]], pluginapi.AllocateResponse]
GetPreferredAllocFunc = Callable[
    [pluginapi.PreferredAllocationRequest, Mapping[str, pluginapi.Device]], pluginapi.PreferredAllocationResponse
]


def device(id: str, healthy: bool = True, *numa_nodes: int) -> pluginapi.Device:
    """Return a device that is near these NUMA nodes."""
    made = pluginapi.Device(ID=id, health=api.HEALTHY if healthy else api.UNHEALTHY)
    for node in numa_nodes:
        made.topology.nodes.add(ID=node)
    return made


class Stub(api_pb2_grpc.DevicePluginServicer, registerapi_grpc.RegistrationServicer):
    """Run a plugin on a real socket.

    An exception that a function raises becomes the plugin's response. `calls` records the calls that change something.
    """

    def __init__(
        self,
        devices: Sequence[pluginapi.Device],
        socket: Path,
        resource_name: str,
        pre_start_container: bool = False,
        get_preferred_allocation: bool = False,
    ) -> None:
        self._socket = socket
        self._resource_name = resource_name
        self._options = pluginapi.DevicePluginOptions(
            pre_start_required=pre_start_container, get_preferred_allocation_available=get_preferred_allocation
        )
        self.alloc_func: AllocFunc = lambda request, devices: pluginapi.AllocateResponse()
        self.get_preferred_alloc_func: GetPreferredAllocFunc = lambda request, devices: (
            pluginapi.PreferredAllocationResponse()
        )
        self.pre_start_func: Callable[[Sequence[str]], None] = lambda ids: None
        self._changed = threading.Condition()  # This lock guards the fields below.
        self._devices = list(devices)
        self._generation = 0
        self._server: grpc.Server | None = None
        self._ended = False
        self.calls: list[str] = []
        self.registration_statuses: list[registerapi.RegistrationStatus] = []

    def start(self) -> None:
        """Start to serve. Replace a socket that is left at the path."""
        self._socket.unlink(missing_ok=True)
        # Each ListAndWatch call keeps a thread.
        server = grpc.server(futures.ThreadPoolExecutor(8, thread_name_prefix="device-plugin-stub"))
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, server)
        registerapi_grpc.add_RegistrationServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{self._socket}")
        server.start()
        with self._changed:
            self._server, self._ended = server, False

    def stop(self) -> None:
        """Stop the plugin. Further calls do nothing."""
        with self._changed:
            server, self._server, self._ended = self._server, None, True
            self._changed.notify_all()
        if server is not None:
            server.stop(None).wait(_DEADLINE)
        self._socket.unlink(missing_ok=True)

    def register(
        self,
        kubelet_socket: Path,
        resource_name: str | None = None,
        version: str = api.VERSION,
        endpoint: str | None = None,
    ) -> None:
        """Register with the kubelet. Raise grpc.RpcError if the kubelet rejects the plugin.

        Arguments replace the plugin's true values.
        """
        request = pluginapi.RegisterRequest(
            version=version,
            endpoint=self._socket.name if endpoint is None else endpoint,
            resource_name=self._resource_name if resource_name is None else resource_name,
            options=self._options,
        )
        with grpc.insecure_channel(f"unix:{kubelet_socket}", options=_OPTIONS) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            stub.Register(request, timeout=_DEADLINE, wait_for_ready=True)

    def update(self, *devices: pluginapi.Device) -> None:
        """Replace the plugin's devices with these."""
        with self._changed:
            self._devices = list(devices)
            self._generation += 1
            self._changed.notify_all()

    # ---- DevicePlugin ----

    def GetDevicePluginOptions(
        self, request: pluginapi.Empty, context: grpc.ServicerContext
    ) -> pluginapi.DevicePluginOptions:
        return self._options

    def ListAndWatch(
        self, request: pluginapi.Empty, context: grpc.ServicerContext
    ) -> Iterator[pluginapi.ListAndWatchResponse]:
        seen = -1
        context.add_callback(self._wake)
        while True:
            with self._changed:
                while not self._ended and context.is_active() and self._generation == seen:
                    self._changed.wait()
                if self._ended or not context.is_active():
                    return
                seen, devices = self._generation, list(self._devices)
            yield pluginapi.ListAndWatchResponse(devices=devices)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def GetPreferredAllocation(
        self, request: pluginapi.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pluginapi.PreferredAllocationResponse:
        return self.get_preferred_alloc_func(request, self._by_id())

    def Allocate(self, request: pluginapi.AllocateRequest, context: grpc.ServicerContext) -> pluginapi.AllocateResponse:
        self._note(f"allocate {' '.join(request.container_requests[0].devices_ids)}")
        return self.alloc_func(request, self._by_id())

    def PreStartContainer(
        self, request: pluginapi.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pluginapi.PreStartContainerResponse:
        self._note(f"pre start {' '.join(request.devices_ids)}")
        self.pre_start_func(request.devices_ids)
        return pluginapi.PreStartContainerResponse()

    def _by_id(self) -> dict[str, pluginapi.Device]:
        with self._changed:
            return {each.ID: each for each in self._devices}

    def _note(self, call: str) -> None:
        with self._changed:
            self.calls.append(call)

    # ---- Registration by the plugin manager ----

    def GetInfo(self, request: registerapi.InfoRequest, context: grpc.ServicerContext) -> registerapi.PluginInfo:
        return registerapi.PluginInfo(
            type=watcherapi.DEVICE_PLUGIN, name=self._resource_name, supported_versions=[api.VERSION]
        )

    def NotifyRegistrationStatus(
        self, request: registerapi.RegistrationStatus, context: grpc.ServicerContext
    ) -> registerapi.RegistrationStatusResponse:
        with self._changed:
            self.registration_statuses.append(request)
        return registerapi.RegistrationStatusResponse()
