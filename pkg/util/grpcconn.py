"""Connections whose calls and states need no thread of gRPC's library.

Whether one stands: what gRPC has for that, `subscribe` and `channel_ready_future`, would end the kubelet: its thread
dies of an exception when the connection is closed at the wrong moment. So it is done here as it is done there, in the
caller's thread.

Calls that can be cancelled: gRPC starts a thread for the first of them. If there is none, no call on that connection is
ever answered again, nor does it end at its deadline. A stream of responses can be read without, by the thread that
asks; on the wire it is the same, also where there is exactly one response.

Go: google.golang.org/grpc/clientconn.go (GetState, Connect, WaitForStateChange)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.experimental

from pkg import golang
from pkg.util import grpcstatus

# The option of a channel whose streams of responses are read by the thread that asks.
READ_BY_CALLER = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)
# How much a server may say of an error, in bytes. Beyond it, the error's own code and text are lost: the call ends with
# RESOURCE_EXHAUSTED. gRPC's library takes 8 KiB unless told, Go's 16 MiB.
MAX_ERROR_SIZE = 16 << 20
LONG_ERRORS = ("grpc.max_metadata_size", MAX_ERROR_SIZE)

# Seconds for which a state is waited for to change, until that is begun anew: closing the connection waits for it.
_LONGEST_WAIT = 0.2
_READY = grpc.ChannelConnectivity.READY.value[0]
_CANCELLED = grpc.StatusCode.CANCELLED.value[0]


def is_ready(conn: grpc.Channel) -> bool:
    """Whether it is connected now. Raises ValueError when it is closed."""
    return bool(_of(conn).check_connectivity_state(False) == _READY)


def wait_until_ready(conn: grpc.Channel, timeout: float) -> bool:
    """Have it connected; whether it is within so many seconds. Raises ValueError when it is closed meanwhile."""
    channel, deadline = _of(conn), time.monotonic() + timeout
    while (state := channel.check_connectivity_state(True)) != _READY:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        channel.watch_connectivity_state(state, time.time() + min(remaining, _LONGEST_WAIT))
    return True


def watch(conn: grpc.Channel, changed: Callable[[bool], None]) -> None:
    """Have it connected all the time, and tell `changed` whether it is, until it is closed."""
    channel = _of(conn)
    try:
        while True:
            # One that is idle, as after its server has gone, does not try by itself.
            state = channel.check_connectivity_state(True)
            changed(state == _READY)
            channel.watch_connectivity_state(state, time.time() + _LONGEST_WAIT)
    except ValueError:
        return  # closed


def _of(conn: grpc.Channel) -> Any:
    """What asks and waits without a thread of its own."""
    return conn._channel  # type: ignore[attr-defined]


@contextlib.contextmanager
def started(
    ctx: golang.Context,
    method: grpc.UnaryStreamMultiCallable[Any, bytes],
    request: Any,
    timeout: float | None = None,
    wait_for_ready: bool | None = None,
) -> Iterator[Any]:
    """Call on a channel with READ_BY_CALLER; the call is cancelled with ctx, and ends with the block.

    Who has the call iterates over its responses, as bytes: gRPC never ends a call whose response it could not decode.
    Raises grpcstatus.StatusError when the channel is closed.
    """
    try:
        call = method(request, timeout=timeout, wait_for_ready=wait_for_ready)
    except ValueError as err:
        raise grpcstatus.client_conn_closing() from err
    stop = golang.after_func(ctx, lambda: cancel(call, str(ctx.err())))
    try:
        yield call
    finally:
        stop()
        end(call)


def response(call: Any) -> bytes:
    """The one response of such a call. Raises grpc.RpcError, and EOFError when the server sent none."""
    found: bytes | None = next(call, None)
    next(call, None)  # the status that follows the response
    if found is None:
        raise EOFError("the server sent no response")
    return found


def cancel(call: Any, reason: str) -> None:
    """Have a call on a channel with READ_BY_CALLER fail with CANCELLED, for the thread that reads. From any thread.

    gRPC would forget the call at once, and never free what it has of it.
    """
    call._call.cancel(_CANCELLED, reason)


def end(call: Any) -> None:
    """Cancel such a call unless it has ended, and take what gRPC still has to say of it, which until then it keeps."""
    if call.is_active():
        cancel(call, "the call is not wanted any more")
        drain(call)


def drain(call: Any) -> None:
    """Read to the end, in the thread that reads, a call that was cancelled or whose channel was closed."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as err:
        grpcstatus.leave_frames(err)
        # An error that is on its way through who reads has the frames that have the call: together they would stay.
        err.__context__ = None
