"""Ports for what the tests start."""

from __future__ import annotations

import random
import socket

# Below those that systems choose for connections and for who asks for any port: none of them takes one between its
# choice and its use.
_PORTS = range(20000, 30000)
_given: set[int] = set()


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now. It is never given out again."""
    while True:
        port = random.choice(_PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
