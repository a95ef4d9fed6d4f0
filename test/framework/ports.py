"""Ports for what the tests start."""

from __future__ import annotations

import random
import socket

# Below those that systems choose for connections and for who asks for any port: none of them takes one between its
# choice and its use.
_PORTS = range(20000, 30000)
# For each port that was given, what tells other processes so until this one ends.
_given: dict[int, socket.socket] = {}


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now. No test of this machine gets it again.

    So a kubelet that was killed can come back to its port.
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
    """Take a name of the kernel's that stands for the port, unless another process has it, which other suites may."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0kubelet-test-port-{port}")
    except OSError:
        name.close()
        return False
    _given[port] = name
    return True
