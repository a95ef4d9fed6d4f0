"""Watch connections and call methods without threads of gRPC's library.

Connectivity: gRPC's `subscribe` and `channel_ready_future` could end the kubelet, because an exception kills their
thread when the connection is closed at the wrong moment. So this module does the same work in the caller's thread.

Cancellable calls: gRPC starts a thread for the first of them. If that thread cannot start, no call on that connection
ever gets a response, or ends at its deadline. The calling thread can read a stream of responses without such a thread.
On the wire the two are the same, even with exactly one response.

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

# With this channel option, the calling thread reads the streams of responses.
READ_BY_CALLER = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)
# A server's error may have this many bytes. Beyond that, gRPC drops the error's code and text and ends the call with
# RESOURCE_EXHAUSTED. The default of gRPC's Python library is 8 KiB, that of Go's is 16 MiB.
MAX_ERROR_SIZE = 16 << 20
LONG_ERRORS = ("grpc.max_metadata_size", MAX_ERROR_SIZE)

# One wait for a change of state lasts at most this many seconds. Closing the connection waits for the end of this wait.
_LONGEST_WAIT = 0.2
_READY = grpc.ChannelConnectivity.READY.value[0]
_CANCELLED = grpc.StatusCode.CANCELLED.value[0]


def is_ready(conn: grpc.Channel) -> bool:
    """Report whether the connection is ready now. Raise ValueError if it is closed."""
    return bool(_of(conn).check_connectivity_state(False) == _READY)


def wait_until_ready(conn: grpc.Channel, timeout: float) -> bool:
    """Connect, and report whether the connection is ready within `timeout` seconds.

    Raise ValueError if it is closed.
    """
    channel, deadline = _of(conn), time.monotonic() + timeout
    while (state := channel.check_connectivity_state(True)) != _READY:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        channel.watch_connectivity_state(state, time.time() + min(remaining, _LONGEST_WAIT))
    return True


def watch(conn: grpc.Channel, changed: Callable[[bool], None]) -> None:
    """Keep the connection connected, and report to `changed` whether it is ready, until it is closed."""
    channel = _of(conn)
    try:
        while True:
            # An idle connection, for example after its server has ended, does not reconnect by itself.
            state = channel.check_connectivity_state(True)
            changed(state == _READY)
            channel.watch_connectivity_state(state, time.time() + _LONGEST_WAIT)
    except ValueError:
        return  # The connection was closed.


def _of(conn: grpc.Channel) -> Any:
    """Return the internal channel, whose methods work without an extra thread."""
    return conn._channel  # type: ignore[attr-defined]


@contextlib.contextmanager
def started(
    ctx: golang.Context,
    method: grpc.UnaryStreamMultiCallable[Any, bytes],
    request: Any,
    timeout: float | None = None,
    wait_for_ready: bool | None = None,
) -> Iterator[Any]:
    """Start a call on a channel with READ_BY_CALLER; cancel it when ctx is cancelled, and end it with the block.

    The caller iterates over the responses, as bytes: gRPC never ends a call whose response it could not decode. Raise
    grpcstatus.StatusError if the channel is closed.
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
    """Return the single response of a call of `started`.

    Raise grpc.RpcError, and EOFError if the server sent no response.
    """
    found: bytes | None = next(call, None)
    next(call, None)  # This step reads the status that follows the response.
    if found is None:
        raise EOFError("the server sent no response")
    return found


def cancel(call: Any, reason: str) -> None:
    """Make a call on a channel with READ_BY_CALLER fail with CANCELLED in the thread that reads.

    Any thread may call this function.

    gRPC's own `cancel` would drop the call at once and leak its memory.
    """
    call._call.cancel(_CANCELLED, reason)


def end(call: Any) -> None:
    """Cancel a call of `started` if it has not ended, and read its remaining events.

    gRPC keeps the events until they are read.
    """
    if call.is_active():
        cancel(call, "the call is no longer needed")
        drain(call)


def drain(call: Any) -> None:
    """Read a cancelled call, or a call of a closed channel, to its end, in the thread that reads."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as err:
        grpcstatus.leave_frames(err)
        # An error that is being raised through the reader refers to frames that refer to the call. Without this line,
        # all of them would stay in memory.
        err.__context__ = None
