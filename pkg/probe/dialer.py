"""Opening connections for probes.

Go: pkg/probe/dialer_others.go
"""

from __future__ import annotations

import os
import socket
import struct

# Wait at most a second when closing: a node with many probes would else run out of ports that stand in TIME_WAIT.
_LINGER_ONE_SECOND = struct.pack("ii", 1, 1)


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Connect to host:port within timeout seconds. Raises OSError in the words of Go's dialer."""
    try:
        connection = socket.create_connection((host, port), timeout)
    except TimeoutError as err:
        raise TimeoutError(f"dial tcp {join_host_port(host, port)}: i/o timeout") from err
    except OSError as err:
        raise OSError(f"dial tcp {join_host_port(host, port)}: {_reason(err)}") from err
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ONE_SECOND)
    return connection


def join_host_port(host: str, port: int) -> str:
    """host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(err: OSError) -> str:
    if isinstance(err, socket.gaierror) or err.errno is None:
        return f"lookup: {err.strerror or err}"
    return f"connect: {os.strerror(err.errno).lower()}"
