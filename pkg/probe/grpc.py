"""Probe a container with the gRPC health protocol.

Go: pkg/probe/grpc/grpc.go
"""

from __future__ import annotations

import enum

import grpc
from google.protobuf import wrappers_pb2
from google.protobuf.message import DecodeError

from pkg import golang, klog
from pkg.component_base import version
from pkg.component_base.cli.flag.duration import format_duration
from pkg.probe import grpcclient
from pkg.probe.dialer import join_host_port
from pkg.probe.probe import Result
from pkg.util.grpcstatus import StatusError

_METHOD = "/grpc.health.v1.Health/Check"

# The two messages of the protocol have one field each, so these standard messages have the same encoding.
_Request = wrappers_pb2.StringValue
_Response = wrappers_pb2.Int32Value


class ServingStatus(enum.IntEnum):
    """Describe a server's response about a service.

    Go: grpc_health_v1.HealthCheckResponse_ServingStatus
    """

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def probe_grpc(ctx: golang.Context, host: str, service: str, port: int, timeout: float) -> tuple[Result, str]:
    """Ask the server, without TLS, whether it serves the service; "" means the server as a whole.

    The whole probe must end within `timeout` seconds. A server that is not up yet may come up in this time. Raise
    ctx.err() once ctx is done, and NoSocketError.
    """
    try:
        status = _check(ctx, host, service, port, timeout)
    except (grpcclient.ConnectionTimeoutError, StatusError) as err:
        ctx.raise_if_done()
        message = _failure(err, join_host_port(host, port), format_duration(timeout))
        klog.v(4).info_s("gRPC probe failed", host=host, port=port, service=service, message=message)
        return Result.FAILURE, message
    if status != ServingStatus.SERVING:
        return Result.FAILURE, f'service unhealthy (responded with "{_status_name(status)}")'
    return Result.SUCCESS, "service healthy"


def _check(ctx: golang.Context, host: str, service: str, port: int, timeout: float) -> int:
    """Return the server's status of the service. Raise ConnectionTimeoutError, StatusError or NoSocketError."""
    info = version.get()
    request = _Request(value=service).SerializeToString()
    limited, cancel = golang.with_timeout(ctx, timeout)
    try:
        with grpcclient.connected(limited, host, port) as conn:
            response = conn.invoke(_METHOD, request, f"kube-probe/{info.major}.{info.minor}")
        return _Response.FromString(response).value
    except DecodeError as err:
        reason = f"grpc: failed to unmarshal the received message: {err}"
        raise StatusError(grpc.StatusCode.INTERNAL, reason) from err
    finally:
        cancel()


def _failure(err: grpcclient.ConnectionTimeoutError | StatusError, address: str, timeout: str) -> str:
    """Return the reason for the failure, with the text of Go's prober."""
    if isinstance(err, grpcclient.ConnectionTimeoutError):
        return f'timeout: failed to connect service "{address}" within {timeout}: {err}'
    match err.code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"timeout: health rpc did not complete within {timeout}"
        case grpc.StatusCode.UNIMPLEMENTED:
            reason = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return f"error: {reason}: {err.message}"
        case _:
            return f"error: health rpc probe failed: {err}"


def _status_name(status: int) -> str:
    try:
        return ServingStatus(status).name
    except ValueError:
        return str(status)
