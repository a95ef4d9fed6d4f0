"""Calls of one plugin of a driver.

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

# Seconds that a driver has to answer: half the time after which the kubelet tries again.
DEFAULT_CLIENT_CALL_TIMEOUT = 45.0
# Services that the kubelet knows, the newest first. Messages of both are the same on the wire.
SERVICES_SUPPORTED_BY_KUBELET = (drapbv1.DRA_PLUGIN_SERVICE, drapbv1beta1.DRA_PLUGIN_SERVICE)

_NODE_WATCH_RESOURCES = "/v1alpha1.DRAResourceHealth/NodeWatchResources"

T = TypeVar("T", bound=Message)


@dataclass(frozen=True, slots=True)
class _Method(Generic[T]):
    """The response as bytes, as gRPC's library never ends a call of which it could not decode a response."""

    name: str
    full_name: str
    call: grpc.UnaryStreamMultiCallable[Message, bytes]
    response_type: type[T]


_OPTIONS = [
    # The name that Go sends, which some servers check.
    ("grpc.default_authority", "localhost"),
    # A proxy of the environment is nothing for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
    # Connections share nothing, and so no waiting time after a driver could not be reached.
    ("grpc.use_local_subchannel_pool", 1),
    # A plugin that comes back is to be noticed soon; milliseconds.
    ("grpc.max_reconnect_backoff_ms", 5000),
    grpcconn.LONG_ERRORS,
    grpcconn.READ_BY_CALLER,
]


class DRAPlugin:
    """One registered plugin of a driver. Thread-safe.

    Methods raise grpcstatus.StatusError for what the plugin answers, and when it does not in time.
    """

    def __init__(self, driver_name: str, endpoint: str, chosen_service: str, client_call_timeout: float) -> None:
        self.driver_name = driver_name
        self.endpoint = endpoint
        self.chosen_service = chosen_service
        self._client_call_timeout = client_call_timeout
        # Connects when it is used, and again when it was cut.
        self.conn = grpc.insecure_channel(f"unix:{endpoint}", options=_OPTIONS)
        # What can be called is made here and not with each call: on a connection that was closed in the meantime,
        # which a deregistration does at any time, gRPC takes the whole process with it.
        self._node_prepare_resources = self._method(
            "NodePrepareResources", drapb.NodePrepareResourcesRequest, drapb.NodePrepareResourcesResponse
        )
        self._node_unprepare_resources = self._method(
            "NodeUnprepareResources", drapb.NodeUnprepareResourcesRequest, drapb.NodeUnprepareResourcesResponse
        )
        # The responses as bytes, for the same reason as in _Method.
        self._node_watch_resources: grpc.UnaryStreamMultiCallable[Message, bytes] = self.conn.unary_stream(
            _NODE_WATCH_RESOURCES, drahealthv1alpha1.NodeWatchResourcesRequest.SerializeToString
        )

    def _method(self, name: str, request_type: type[Message], response_type: type[T]) -> _Method[T]:
        # The same messages whatever the service's version, which is but in the method's name.
        full_name = f"/k8s.io.kubelet.pkg.apis.dra.{self.chosen_service}/{name}"
        call: grpc.UnaryStreamMultiCallable[Message, bytes] = self.conn.unary_stream(
            full_name, request_type.SerializeToString
        )
        return _Method(name, full_name, call, response_type)

    def node_prepare_resources(
        self, ctx: golang.Context, req: drapb.NodePrepareResourcesRequest
    ) -> drapb.NodePrepareResourcesResponse:
        """Have the claims prepared. What went wrong with single ones stands in the response."""
        return self._call(ctx, self._node_prepare_resources, req)

    def node_unprepare_resources(
        self, ctx: golang.Context, req: drapb.NodeUnprepareResourcesRequest
    ) -> drapb.NodeUnprepareResourcesResponse:
        """Have the claims given back. What went wrong with single ones stands in the response."""
        return self._call(ctx, self._node_unprepare_resources, req)

    @contextmanager
    def node_watch_resources(
        self, ctx: golang.Context
    ) -> Iterator[Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]]:
        """How the plugin's devices are, from now until ctx is cancelled or the plugin ends it."""
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
        """Cut the connection: calls in flight fail, and none is made any more."""
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
    """Count how long the call took. Go: newMetricsInterceptor"""
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
