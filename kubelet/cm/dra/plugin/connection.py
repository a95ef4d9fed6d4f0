"""Whether a plugin is there, without calling it.

Go: HandleConn in pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, google.golang.org/grpc/stats
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

# Seconds for which a state is waited for to change, until that is begun anew: closing the connection waits for it.
_LONGEST_WAIT = 0.2
_READY = grpc.ChannelConnectivity.READY.value[0]


def watch_connection(conn: grpc.Channel, changed: Callable[[bool], None]) -> None:
    """Have it connected all the time, and tell `changed` whether it is, until it is closed.

    What gRPC has for that, `subscribe`, would end the kubelet: its thread dies of an exception when the connection is
    closed at the wrong moment. So it is done here as it is done there.
    """
    channel: Any = conn._channel  # type: ignore[attr-defined]
    try:
        while True:
            # One that is idle, as after its server has gone, does not try by itself.
            state = channel.check_connectivity_state(True)
            changed(state == _READY)
            channel.watch_connectivity_state(state, time.time() + _LONGEST_WAIT)
    except ValueError:
        return  # closed
