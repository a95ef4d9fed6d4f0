"""Serve the socket on which device plugins register.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go
"""

from __future__ import annotations

import contextlib
import os

import grpc

from kubelet import metrics
from kubelet.apis import grpc as apisgrpc
from kubelet.apis.deviceplugin import v1beta1 as api
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.apis.deviceplugin.v1beta1 import api_pb2_grpc
from kubelet.cm.devicemanager.plugin.v1beta1.api import ClientHandler, RegistrationHandler
from kubelet.cm.devicemanager.plugin.v1beta1.handler import (
    PluginClients,
    invalid_resource_name,
    is_version_compatible_with_plugin,
)
from pkg import klog
from pkg.apimachinery import clock as clocklib
from pkg.apis.core.v1 import helper as v1helper
from pkg.util import filesystem

# _WORKERS is the number of permanent threads for registrations.
_WORKERS = 4
# MAX_COUNTED_NAMES is the maximum number of resource names for which the metric counts registrations.
MAX_COUNTED_NAMES = 1_000
# _STOP_TIMEOUT is the time, in seconds, that pending calls and threads have to end.
_STOP_TIMEOUT = 5.0


class Server(PluginClients, api_pb2_grpc.RegistrationServicer):
    """Serve registrations. `start` and `stop` must not run at the same time; all other methods are thread-safe.

    Go: server
    """

    def __init__(
        self, socket_path: str, rhandler: RegistrationHandler, chandler: ClientHandler, clock: clocklib.Clock
    ) -> None:
        """Raise ValueError for a path that is not absolute."""
        if not os.path.isabs(socket_path):
            raise ValueError(f"bad socketPath, must be an absolute path: {socket_path}")
        super().__init__(chandler, clock)
        klog.v(2).info_s("Creating device plugin registration server", version=api.VERSION, socket=socket_path)
        self.socket_path = socket_path
        self._socket_dir = os.path.dirname(socket_path)
        self._rhandler = rhandler
        self._grpc: grpc.Server | None = None
        # Closing this stack ends the threads of the listening server.
        self._ends = contextlib.ExitStack()
        # The most recently registered name is the last. The field is guarded by _clients_lock.
        self._counted_names: dict[str, None] = {}
        # This error keeps plugins from registering.
        self._last_error: OSError | None = None

    def start(self) -> None:
        """Remove the sockets of an earlier kubelet and its plugins, and listen. Raise OSError or golang.ThreadError."""
        klog.v(2).info_s("Starting device plugin registration server")
        try:
            filesystem.mkdir_all(self._socket_dir, 0o750)
            self._rhandler.cleanup_plugin_directory(self._socket_dir)
            self.take_clients()
            self._listen()
        except OSError as err:
            klog.error_s(err, "Failed to listen to socket while starting device plugin registry")
            self._last_error = err
            raise
        self._last_error = None

    def _listen(self) -> None:
        with contextlib.ExitStack() as ends:
            pool = apisgrpc.new_thread_pool(_WORKERS, "device-plugin-registration")
            ends.callback(pool.shutdown, wait=False)
            # A registration waits for its plugin, and must not keep other plugins from registering.
            timeouts = apisgrpc.RequestTimeouts("device-plugin-registration-requests", apisgrpc.MAX_THREADS)
            ends.callback(timeouts.close)
            server = grpc.server(pool, interceptors=[timeouts])
            api_pb2_grpc.add_RegistrationServicer_to_server(self, server)
            try:
                server.add_insecure_port(f"unix:{self.socket_path}")
                apisgrpc.start(server)
            except RuntimeError as err:
                raise OSError(f"listen unix {self.socket_path}: {err}") from err
            self._grpc, self._ends = server, ends.pop_all()

    def stop(self) -> None:
        """Disconnect all plugins and stop listening. Do nothing if the server is not running."""
        self.disconnect_all()
        if self._grpc is None:
            return
        self._grpc.stop(None).wait(_STOP_TIMEOUT)
        self._grpc = None
        self._ends.close()
        klog.v(2).info_s("Stopping device plugin registration server")

    def Register(self, request: pluginapi.RegisterRequest, context: grpc.ServicerContext) -> pluginapi.Empty:
        name = request.resource_name
        klog.info_s("Got registration request from device plugin with resource", resourceName=name)
        try:
            self._register(request)
        except Exception as err:
            # The plugin receives every error.
            klog.error_s(err, "Bad registration request from device plugin with resource", resourceName=name)
            context.abort(grpc.StatusCode.UNKNOWN, str(err))
        return pluginapi.Empty()

    def _register(self, request: pluginapi.RegisterRequest) -> None:
        if not is_version_compatible_with_plugin(request.version):
            supported = f"[{' '.join(api.SUPPORTED_VERSIONS)}]"
            raise ValueError(
                f"requested API version {klog.quote(request.version)} is not supported by kubelet. "
                f"Supported version is {klog.quote(supported)}"
            )
        if not v1helper.is_extended_resource_name(request.resource_name):
            raise ValueError(invalid_resource_name(request.resource_name))
        self._count(request.resource_name)
        if not request.endpoint:
            raise ValueError(f"no endpoint was given for resource {request.resource_name}")
        self.connect_client(request.resource_name, os.path.normpath(f"{self._socket_dir}/{request.endpoint}"))

    def _count(self, name: str) -> None:
        """Count the registrations of each resource.

        DIVERGES (safer): beyond MAX_COUNTED_NAMES, the kubelet drops the count of the resource whose last registration
        is the oldest.
        Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go, (*server).Register: there is no limit.
        Why: a plugin may register under another name each time.
        Test: server_test.py:test_more_names_than_are_counted
        """
        count = metrics.DEVICE_PLUGIN_REGISTRATION_COUNT
        with self._clients_lock:
            self._counted_names.pop(name, None)
            self._counted_names[name] = None
            count.labels(name).inc()
            if len(self._counted_names) > MAX_COUNTED_NAMES:
                oldest = next(iter(self._counted_names))
                del self._counted_names[oldest]
                count.remove(oldest)

    def check(self) -> None:
        """Raise OSError if no plugin can register, for the health check "device-plugin"."""
        if self._last_error is not None:
            raise OSError(
                "device registration error: device plugin registration gRPC server failed and no device plugins can "
                f"register: {self._last_error}"
            ) from self._last_error
