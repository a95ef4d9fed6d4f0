"""Whether a connection stands, without calling anything on it.

What gRPC has for that, `subscribe` and `channel_ready_future`, would end the kubelet: its thread dies of an exception
when the connection is closed at the wrong moment. So it is done here as it is done there, in the caller's thread.

Go: google.golang.org/grpc/clientconn.go (GetState, Connect, WaitForStateChange)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

# Seconds for which a state is waited for to change, until that is begun anew: closing the connection waits for it.
_LONGEST_WAIT = 0.2
_READY = grpc.ChannelConnectivity.READY.value[0]


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
