"""Choose ports for the programs that the tests start."""

from __future__ import annotations

import random
import socket

# The range is below the ports that systems choose for connections and for port 0. So the system assigns none of these
# ports between the choice of a port and its use.
_PORTS = range(20000, 30000)
# For each chosen port, a bound socket keeps other processes from choosing it until this process ends.
_given: dict[int, socket.socket] = {}


def free_port() -> int:
    """Return a free TCP port of the loopback address. No other test of this machine gets the same port.

    A kubelet that was killed can therefore use its port again.
    """
    while True:
        port = random.choice(_PORTS)
        if port not in _given and _is_free(port) and _reserve(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    """Reserve the port by binding an abstract socket name, unless another process, perhaps of another suite, has it."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0kubelet-test-port-{port}")
    except OSError:
        name.close()
        return False
    _given[port] = name
    return True
