"""Probing by opening a connection.

Go: pkg/probe/tcp/tcp.go
"""

from __future__ import annotations

import socket
import struct

from pkg.probe.probe import Result

# Closing with a reset leaves no socket in TIME_WAIT: a node with many probes would run out of ports.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def probe_tcp(host: str, port: int, timeout: float) -> tuple[Result, str]:
    """Whether host:port accepts a connection within timeout seconds, and if not, why."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    except OSError as err:
        return Result.FAILURE, f"dial tcp {host}:{port}: {err}"
    return Result.SUCCESS, ""
