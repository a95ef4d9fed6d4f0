"""Probing by the gRPC health protocol.

Go: pkg/probe/grpc/grpc.go
"""

from __future__ import annotations

import enum
import ipaddress
from typing import Any

import grpc
from google.protobuf import wrappers_pb2

from pkg import golang, klog
from pkg.component_base import version
from pkg.component_base.cli.flag.duration import format_duration
from pkg.probe.dialer import check_for_socket, join_host_port
from pkg.probe.probe import Result
from pkg.util import grpcconn

_METHOD = "/grpc.health.v1.Health/Check"

# The protocol's two messages have one field each, and on the wire they are these.
_Request = wrappers_pb2.StringValue
_Response = wrappers_pb2.Int32Value

_OPTIONS = [
    # Each probe makes a connection of its own: one that worked a minute ago says nothing.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
]


# What gRPC takes at most.
_LONGEST_BACKOFF_MS = 2**31 - 1


class ServingStatus(enum.IntEnum):
    """What a server says of a service. Go: HealthCheckResponse_ServingStatus of grpc_health_v1"""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def probe_grpc(ctx: golang.Context, host: str, service: str, port: int, timeout: float) -> tuple[Result, str]:
    """Ask the server, without TLS, whether it serves the service; "" asks for the server as a whole.

    All within timeout seconds. A server that is not there yet may come up meanwhile. Raises ctx.err() once ctx is
    done, and NoSocketError.
    DIVERGES: in Go the question outlives its pod.
    """
    info = version.get()
    options = [
        *_OPTIONS,
        ("grpc.primary_user_agent", f"kube-probe/{info.major}.{info.minor}"),
        # How long an attempt to connect may take, in spite of its name: one that is still under way keeps its socket
        # when the channel is closed, for 20 s if nobody says so. Ending before the probe does, it would be repeated.
        ("grpc.min_reconnect_backoff_ms", min(round(timeout * 1000) + 100, _LONGEST_BACKOFF_MS)),
    ]
    check_for_socket()
    with grpc.insecure_channel(_target(host, port), options=options) as channel:
        try:
            response = _check(ctx, channel, _Request(value=service), timeout)
        except grpc.RpcError as err:
            connected = grpcconn.is_ready(channel)
            if not connected:
                check_for_socket()
            message = _failure(err, connected, join_host_port(host, port), format_duration(timeout))
            klog.v(4).info_s("gRPC probe failed", host=host, port=port, service=service, message=message)
            return Result.FAILURE, message
    if response is None:
        reason = "cardinality violation: received no response message from non-server-streaming RPC"
        return Result.FAILURE, f"error: health rpc probe failed: rpc error: code = Internal desc = {reason}"
    if response.value != ServingStatus.SERVING:
        return Result.FAILURE, f'service unhealthy (responded with "{_status_name(response.value)}")'
    return Result.SUCCESS, "service healthy"


def _check(ctx: golang.Context, channel: grpc.Channel, request: _Request, timeout: float) -> _Response | None:
    """The server's response, None if there is none. Raises grpc.RpcError, and ctx.err() once ctx is done.

    Not as a stream, though `cancel` could end that: gRPC keeps for ever what nobody has read of a stream that ends
    otherwise than with its first response. A call that ends with its channel leaves nothing, and takes no thread.
    """
    check = channel.unary_unary(_METHOD, _Request.SerializeToString, _Response.FromString)
    take_back = golang.after_func(ctx, channel.close)
    try:
        response: _Response | None = check(request, timeout=timeout, wait_for_ready=True)
        return response
    except (grpc.RpcError, ValueError) as err:
        # ValueError: the channel was closed before the call.
        if (done := ctx.err()) is not None:
            raise done from err
        raise
    finally:
        take_back()


def _target(host: str, port: int) -> str:
    """The server's address as gRPC writes it."""
    try:
        family = f"ipv{ipaddress.ip_address(host).version}"
    except ValueError:
        family = "dns"
    return f"{family}:{join_host_port(host, port)}"


def _failure(err: Any, connected: bool, address: str, timeout: str) -> str:
    """What went wrong, in the words of Go's prober; connected, whether the call got to a server that speaks gRPC."""
    match err.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED if not connected:
            return f'timeout: failed to connect service "{address}" within {timeout}: context deadline exceeded'
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"timeout: health rpc did not complete within {timeout}"
        case grpc.StatusCode.UNIMPLEMENTED:
            reason = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return f"error: {reason}: {err.details()}"
        case code:
            return f"error: health rpc probe failed: rpc error: code = {_code_name(code)} desc = {err.details()}"


def _code_name(code: grpc.StatusCode) -> str:
    """The code as Go writes it: NOT_FOUND is NotFound, and CANCELLED has one L."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(word.capitalize() for word in code.name.split("_"))


def _status_name(status: int) -> str:
    try:
        return ServingStatus(status).name
    except ValueError:
        return str(status)
