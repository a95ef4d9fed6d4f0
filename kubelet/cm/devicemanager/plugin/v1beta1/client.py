"""Run the connection to one device plugin.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.apis.deviceplugin.v1beta1 import api_pb2_grpc
from kubelet.cm.devicemanager.plugin.v1beta1.device_lists import DeviceLists
from pkg import golang, klog
from pkg.apimachinery import clock as clocklib
from pkg.util import grpcconn, grpcstatus

if TYPE_CHECKING:
    from kubelet.cm.devicemanager.plugin.v1beta1.api import ClientHandler

# _DIAL_TIMEOUT is the time, in seconds, that a plugin has to accept the connection to its socket.
_DIAL_TIMEOUT = 10.0
# _JOIN_TIMEOUT is the time, in seconds, that a closed connection has to end.
_JOIN_TIMEOUT = 5.0
_OPTIONS = [
    ("grpc.default_authority", "localhost"),
    # A proxy from the environment cannot reach a local socket.
    ("grpc.enable_http_proxy", 0),
    # Without this option, gRPC may reuse a connection to an earlier socket at the same path.
    ("grpc.use_local_subchannel_pool", 1),
    grpcconn.LONG_ERRORS,
    grpcconn.READ_BY_CALLER,
]

_LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class DevicePlugin(Protocol):
    """Define a plugin as the device manager sees it."""

    @property
    def api(self) -> api_pb2_grpc.DevicePluginStub: ...

    @property
    def resource(self) -> str: ...

    @property
    def socket_path(self) -> str: ...

    def begin(
        self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float
    ) -> Future[_Response]:
        """Call the plugin without waiting for the response. Raise golang.ThreadError.

        The result raises the errors of `call`.
        """
        ...


def call(
    method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float, resource: str
) -> _Response:
    """Call the plugin of a resource.

    Raise grpcstatus.StatusError for an error of the plugin, and if there is no response within `timeout` seconds.

    DIVERGES (safer): the kubelet rejects a plugin that registers and does not return its options within ten seconds.
    Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).PluginConnected: there is no timeout.
    Why: each such plugin would keep a thread and a connection.
    Test: server_test.py:test_plugin_that_hangs_when_it_registers
    """
    try:
        return method(request, timeout=timeout)
    except ValueError as err:
        # The connection was closed meanwhile.
        raise grpcstatus.client_conn_closing() from err
    except grpc.RpcError as err:
        raise _status(err, timeout, resource) from err


def _status(err: grpc.RpcError, timeout: float, resource: str) -> grpcstatus.StatusError:
    grpcstatus.leave_frames(err)
    assert isinstance(err, grpc.Call)
    code = err.code()
    late = f"the device plugin of {resource} has not responded within {timeout:g} s"
    return grpcstatus.StatusError(code, late if code is grpc.StatusCode.DEADLINE_EXCEEDED else err.details() or "")


class _ListStream:
    """Implement device_lists.ListStream, with responses that are decoded here.

    gRPC's library never ends a call whose response it fails to decode, and keeps the connection open.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[pluginapi.ListAndWatchResponse]:
        return map(pluginapi.ListAndWatchResponse.FromString, self._call)

    def cancel(self) -> None:
        grpcconn.cancel(self._call, "the kubelet no longer listens to the plugin")

    def end(self) -> None:
        grpcconn.end(self._call)


class PluginClient:
    """Connect to one plugin and receive its lists of devices. All methods are thread-safe.

    Go: client
    """

    def __init__(self, resource: str, socket_path: str, handler: ClientHandler, clock: clocklib.Clock) -> None:
        self._resource = resource
        self._socket_path = socket_path
        self._handler = handler
        self._clock = clock
        self._lock = threading.Lock()  # This lock guards the fields below.
        self._channel: grpc.Channel | None = None
        self._closed = False
        self._api: api_pb2_grpc.DevicePluginStub | None = None
        # `connect` sets this field and the stub.
        self._list_and_watch: grpc.UnaryStreamMultiCallable[pluginapi.Empty, bytes] | None = None
        # `start` sets these fields.
        self._lists: DeviceLists | None = None
        self._thread: golang.Thread | None = None

    @property
    def resource(self) -> str:
        return self._resource

    @property
    def socket_path(self) -> str:
        return self._socket_path

    @property
    def api(self) -> api_pb2_grpc.DevicePluginStub:
        """Return the stub. The client must be connected."""
        assert self._api is not None
        return self._api

    def connect(self) -> None:
        """Connect to the plugin and pass it to the device manager. Raise ConnectionError, or the manager's error."""
        channel = grpc.insecure_channel(f"unix:{self._socket_path}", options=_OPTIONS)
        if not grpcconn.wait_until_ready(channel, _DIAL_TIMEOUT):
            channel.close()
            failure = ConnectionError(f"failed to dial device plugin: no server listens at {self._socket_path}")
            klog.error_s(failure, "Unable to connect to device plugin client with socket path", path=self._socket_path)
            raise failure
        with self._lock:
            self._channel = channel
            self._api = api_pb2_grpc.DevicePluginStub(channel)
            self._list_and_watch = channel.unary_stream(_LIST_AND_WATCH, pluginapi.Empty.SerializeToString)
        self._handler.plugin_connected(self._resource, self)

    def begin(
        self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float
    ) -> Future[_Response]:
        """Call the plugin without waiting for the response; see DevicePlugin.begin.

        The call runs on a thread of this module: if gRPC fails to start a thread, the connection never delivers a
        response again.
        """
        answer: Future[_Response] = Future()

        def ask() -> None:
            try:
                response = call(method, request, timeout, self._resource)
            except Exception as err:
                # The waiting caller receives every error.
                answer.set_exception(err)
            else:
                answer.set_result(response)

        golang.go(ask, name=f"device-plugin-{self._resource}-call")
        return answer

    def start(self, run: Callable[[PluginClient], None]) -> None:
        """Request the plugin's list of devices, and call `run` with this client on a new thread.

        Raise ValueError if the client is already closed, or golang.ThreadError. The registering plugin must see such an
        error, because it does not register again by itself.
        """
        assert self._list_and_watch is not None, "a client is connected before it is started"
        self._lists = DeviceLists(_ListStream(self._list_and_watch(pluginapi.Empty())), self._clock)
        self._lists.start(f"device-plugin-{self._resource}-lists")
        try:
            self._thread = golang.go(run, self, name=f"device-plugin-{self._resource}")
        except golang.ThreadError:
            self._lists.stop()
            raise

    def join(self) -> None:
        """Wait for the thread of `start`, which ends when the client is closed."""
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT)

    def run(self) -> None:
        """Pass the plugin's lists to the device manager until the plugin disconnects or the client is closed."""
        assert self._lists is not None
        try:
            err = self._lists.hand_on(self._receive)
        except Exception as failure:
            # This plugin has to register again; other plugins are not affected.
            err = failure
        if isinstance(err, grpc.RpcError):
            err = _status(err, 0, self._resource)
        klog.error_s(err, "ListAndWatch ended unexpectedly for device plugin", resource=self._resource)

    def _receive(self, response: pluginapi.ListAndWatchResponse) -> None:
        klog.v(2).info_s(
            "State pushed for device plugin", resource=self._resource, resourceCapacity=len(response.devices)
        )
        with self._lock:
            closed = self._closed
        # A closed client may have been replaced by another plugin of the resource.
        if not closed:
            self._handler.plugin_list_and_watch_receiver(self._resource, response)

    def close(self) -> None:
        """Close the connection without notice to the device manager, because another plugin has replaced this one."""
        with self._lock:
            channel, self._channel, self._closed = self._channel, None, True
        if channel is not None:
            channel.close()

    def disconnect(self) -> None:
        """Close the connection, and tell the device manager that the plugin is gone."""
        self.close()
        self._handler.plugin_disconnected(self._resource, self)
        klog.v(2).info_s("Device plugin disconnected", resource=self._resource)
