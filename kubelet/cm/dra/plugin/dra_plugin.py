"""Call one plugin of a driver.

Go: pkg/kubelet/cm/dra/plugin/dra_plugin.go
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from kubelet import metrics
from kubelet.apis.dra import v1 as drapbv1
from kubelet.apis.dra import v1beta1 as drapbv1beta1
from kubelet.apis.dra.v1 import api_pb2 as drapb
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealthv1alpha1
from pkg import golang, klog
from pkg.util import grpcconn, grpcstatus

# DEFAULT_CLIENT_CALL_TIMEOUT is the time, in seconds, that a driver has to respond. It is half the time after which the
# kubelet tries again.
DEFAULT_CLIENT_CALL_TIMEOUT = 45.0
# SERVICES_SUPPORTED_BY_KUBELET holds the services that the kubelet knows, the newest first. Both have the same messages
# on the wire.
SERVICES_SUPPORTED_BY_KUBELET = (drapbv1.DRA_PLUGIN_SERVICE, drapbv1beta1.DRA_PLUGIN_SERVICE)

_NODE_WATCH_RESOURCES = "/v1alpha1.DRAResourceHealth/NodeWatchResources"

T = TypeVar("T", bound=Message)


@dataclass(frozen=True, slots=True)
class _Method(Generic[T]):
    """Describe a method whose responses arrive as bytes.

    gRPC's library never ends a call whose response it fails to decode.
    """

    name: str
    full_name: str
    call: grpc.UnaryStreamMultiCallable[Message, bytes]
    response_type: type[T]


_OPTIONS = [
    # Go's client sends this name, and some servers check it.
    ("grpc.default_authority", "localhost"),
    # A proxy from the environment cannot reach a local socket.
    ("grpc.enable_http_proxy", 0),
    # Without this option, connections would share a backoff after a driver could not be reached.
    ("grpc.use_local_subchannel_pool", 1),
    # The kubelet must soon notice a plugin that returns. The value is in milliseconds.
    ("grpc.max_reconnect_backoff_ms", 5000),
    grpcconn.LONG_ERRORS,
    grpcconn.READ_BY_CALLER,
]


class DRAPlugin:
    """Call one registered plugin of a driver. All methods are thread-safe.

    The methods raise grpcstatus.StatusError for an error of the plugin, and for a timeout.
    """

    def __init__(self, driver_name: str, endpoint: str, chosen_service: str, client_call_timeout: float) -> None:
        self.driver_name = driver_name
        self.endpoint = endpoint
        self.chosen_service = chosen_service
        self._client_call_timeout = client_call_timeout
        # The channel connects at its first use, and reconnects after a lost connection.
        self.conn = grpc.insecure_channel(f"unix:{endpoint}", options=_OPTIONS)
        # The callables are created here, and not for each call. A deregistration may close the channel at any time, and
        # gRPC crashes the whole process when a callable is created on a closed channel.
        self._node_prepare_resources = self._method(
            "NodePrepareResources", drapb.NodePrepareResourcesRequest, drapb.NodePrepareResourcesResponse
        )
        self._node_unprepare_resources = self._method(
            "NodeUnprepareResources", drapb.NodeUnprepareResourcesRequest, drapb.NodeUnprepareResourcesResponse
        )
        # The responses arrive as bytes for the reason given in _Method.
        self._node_watch_resources: grpc.UnaryStreamMultiCallable[Message, bytes] = self.conn.unary_stream(
            _NODE_WATCH_RESOURCES, drahealthv1alpha1.NodeWatchResourcesRequest.SerializeToString
        )

    def _method(self, name: str, request_type: type[Message], response_type: type[T]) -> _Method[T]:
        # All versions of the service have the same messages; only the method's name contains the version.
        full_name = f"/k8s.io.kubelet.pkg.apis.dra.{self.chosen_service}/{name}"
        call: grpc.UnaryStreamMultiCallable[Message, bytes] = self.conn.unary_stream(
            full_name, request_type.SerializeToString
        )
        return _Method(name, full_name, call, response_type)

    def node_prepare_resources(
        self, ctx: golang.Context, req: drapb.NodePrepareResourcesRequest
    ) -> drapb.NodePrepareResourcesResponse:
        """Have the claims prepared. The response contains the errors of individual claims."""
        return self._call(ctx, self._node_prepare_resources, req)

    def node_unprepare_resources(
        self, ctx: golang.Context, req: drapb.NodeUnprepareResourcesRequest
    ) -> drapb.NodeUnprepareResourcesResponse:
        """Have the claims unprepared. The response contains the errors of individual claims."""
        return self._call(ctx, self._node_unprepare_resources, req)

    @contextmanager
    def node_watch_resources(
        self, ctx: golang.Context
    ) -> Iterator[Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]]:
        """Receive reports about the plugin's devices until `ctx` is cancelled or the plugin ends the stream."""
        klog.v(4).info_s("Starting WatchResources stream", driverName=self.driver_name, endpoint=self.endpoint)
        request = drahealthv1alpha1.NodeWatchResourcesRequest()
        with grpcconn.started(ctx, self._node_watch_resources, request) as call:
            yield self._reports(ctx, call)

    def _reports(self, ctx: golang.Context, call: Any) -> Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]:
        reports = map(drahealthv1alpha1.NodeWatchResourcesResponse.FromString, call)
        while True:
            with self._translated(ctx):
                report = next(reports, None)
            if report is None:
                return
            yield report

    @contextmanager
    def _translated(self, ctx: golang.Context) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as err:
            grpcstatus.leave_frames(err)
            if isinstance(ctx.err(), golang.Canceled):
                raise grpcstatus.StatusError(grpc.StatusCode.CANCELLED, str(ctx.err())) from err
            raise grpcstatus.from_call(err, self.endpoint) from err
        except DecodeError as err:
            raise grpcstatus.StatusError(grpc.StatusCode.INTERNAL, f"the response cannot be decoded: {err}") from err
        except EOFError as err:
            raise grpcstatus.StatusError(grpc.StatusCode.INTERNAL, str(err)) from err

    def close(self) -> None:
        """Close the connection. Pending calls fail, and no further call is possible."""
        self.conn.close()

    def _call(self, ctx: golang.Context, method: _Method[T], request: Message) -> T:
        subject = {"driverName": self.driver_name, "endpoint": self.endpoint}
        klog.v(4).info_s(f"Calling {method.name} rpc", request=request, **subject)
        with _observed(self.driver_name, method.full_name):
            response = self._invoke(ctx, method, request)
        klog.v(4).info_s(f"Done calling {method.name} rpc", response=response, **subject)
        return response

    def _invoke(self, ctx: golang.Context, method: _Method[T], request: Message) -> T:
        remaining = ctx.remaining()
        timeout = self._client_call_timeout if remaining is None else min(self._client_call_timeout, remaining)
        with grpcconn.started(ctx, method.call, request, timeout) as call, self._translated(ctx):
            return method.response_type.FromString(grpcconn.response(call))


@contextmanager
def _observed(driver_name: str, full_method: str) -> Iterator[None]:
    """Measure the duration of the call.

    Go: newMetricsInterceptor
    """
    start, code = time.monotonic(), grpc.StatusCode.OK
    try:
        yield
    except grpcstatus.StatusError as err:
        code = err.code
        klog.v(4).info_s("Call of a DRA plugin failed", driverName=driver_name, method=full_method, err=err)
        raise
    finally:
        labels = (driver_name, full_method, grpcstatus.code_name(code))
        metrics.DRA_GRPC_OPERATIONS_DURATION.labels(*labels).observe(time.monotonic() - start)
