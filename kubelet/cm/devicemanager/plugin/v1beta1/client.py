"""The connection to one device plugin.

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

# Seconds until a plugin must have answered its socket.
_DIAL_TIMEOUT = 10.0
# Seconds that a closed connection may take to end.
_JOIN_TIMEOUT = 5.0
_OPTIONS = [
    ("grpc.default_authority", "localhost"),
    # A proxy of the environment is nothing for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
    # No connection that was made to another socket at the same path.
    ("grpc.use_local_subchannel_pool", 1),
    grpcconn.LONG_ERRORS,
    grpcconn.READ_BY_CALLER,
]

_LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class DevicePlugin(Protocol):
    """A plugin as the device manager knows it."""

    @property
    def api(self) -> api_pb2_grpc.DevicePluginStub: ...

    @property
    def resource(self) -> str: ...

    @property
    def socket_path(self) -> str: ...

    def begin(
        self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float
    ) -> Future[_Response]:
        """As call, but without waiting for the answer, which raises as call. Raises golang.ThreadError."""
        ...


def call(
    method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float, resource: str
) -> _Response:
    """Ask the plugin of a resource.

    Raises grpcstatus.StatusError for what the plugin answers, and when it has not after so many seconds.

    DIVERGES (safer): a plugin that registers and does not say its options within ten seconds is refused.
    Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).PluginConnected: has no bound.
    Why: each such plugin would keep a thread and a connection.
    Test: server_test.py:test_plugin_that_hangs_when_it_registers
    """
    try:
        return method(request, timeout=timeout)
    except ValueError as err:
        # The plugin was let go meanwhile.
        raise grpcstatus.client_conn_closing() from err
    except grpc.RpcError as err:
        raise _status(err, timeout, resource) from err


def _status(err: grpc.RpcError, timeout: float, resource: str) -> grpcstatus.StatusError:
    grpcstatus.leave_frames(err)
    assert isinstance(err, grpc.Call)
    code = err.code()
    late = f"the device plugin of {resource} has not answered within {timeout:g} s"
    return grpcstatus.StatusError(code, late if code is grpc.StatusCode.DEADLINE_EXCEEDED else err.details() or "")


class _ListStream:
    """A device_lists.ListStream. The lists come as bytes.

    gRPC's library never ends a call of which it could not decode a response, and keeps its connection open.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[pluginapi.ListAndWatchResponse]:
        return map(pluginapi.ListAndWatchResponse.FromString, self._call)

    def cancel(self) -> None:
        grpcconn.cancel(self._call, "the plugin is not listened to any more")

    def end(self) -> None:
        grpcconn.end(self._call)


class PluginClient:
    """Go: client. Safe from any thread."""

    def __init__(self, resource: str, socket_path: str, handler: ClientHandler, clock: clocklib.Clock) -> None:
        self._resource = resource
        self._socket_path = socket_path
        self._handler = handler
        self._clock = clock
        self._lock = threading.Lock()  # guards the fields below
        self._channel: grpc.Channel | None = None
        self._closed = False
        self._api: api_pb2_grpc.DevicePluginStub | None = None
        # Set by connect, like the stub.
        self._list_and_watch: grpc.UnaryStreamMultiCallable[pluginapi.Empty, bytes] | None = None
        # Set by start.
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
        """Of a client that is connected."""
        assert self._api is not None
        return self._api

    def connect(self) -> None:
        """Reach the plugin, and hand it to the device manager. Raises ConnectionError, and what the manager raises."""
        channel = grpc.insecure_channel(f"unix:{self._socket_path}", options=_OPTIONS)
        if not grpcconn.wait_until_ready(channel, _DIAL_TIMEOUT):
            channel.close()
            failure = ConnectionError(f"failed to dial device plugin: nobody answers at {self._socket_path}")
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
        """See DevicePlugin. On a thread of our own: if gRPC cannot start one, the connection never answers again."""
        answer: Future[_Response] = Future()

        def ask() -> None:
            try:
                response = call(method, request, timeout, self._resource)
            except Exception as err:
                # Whatever it is, who waits for the answer is to know.
                answer.set_exception(err)
            else:
                answer.set_result(response)

        golang.go(ask, name=f"device-plugin-{self._resource}-call")
        return answer

    def start(self, run: Callable[[PluginClient], None]) -> None:
        """Have the plugin tell of its devices, and call run with this client on a thread of its own.

        Raises ValueError when the client is closed already, and golang.ThreadError: the plugin that registers is to
        know, as it does not register again by itself.
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
        """Wait for that thread, which ends when the client is closed."""
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT)

    def run(self) -> None:
        """Hand on the plugin's devices, until it goes away or the client is closed."""
        assert self._lists is not None
        try:
            err = self._lists.hand_on(self._receive)
        except Exception as failure:
            # It has to register again, and the others stay.
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
        # Another plugin may have taken its place.
        if not closed:
            self._handler.plugin_list_and_watch_receiver(self._resource, response)

    def close(self) -> None:
        """Give the connection up without a word to the device manager: another plugin has the resource now."""
        with self._lock:
            channel, self._channel, self._closed = self._channel, None, True
        if channel is not None:
            channel.close()

    def disconnect(self) -> None:
        """Give the connection up, and tell the device manager that the plugin is gone."""
        self.close()
        self._handler.plugin_disconnected(self._resource, self)
        klog.v(2).info_s("Device plugin disconnected", resource=self._resource)
