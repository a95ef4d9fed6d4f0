"""Determine the host's name.

Go: k8s.io/component-helpers/node/util/hostname.go
"""

from __future__ import annotations

import socket


def get_hostname(hostname_override: str) -> str:
    """Return the override or the system's name, trimmed and in lower case; raise ValueError if it is empty."""
    name = (hostname_override or socket.gethostname()).strip()
    if not name:
        raise ValueError("empty hostname is invalid")
    return name.lower()
