"""What a service tells systemd, and what systemd wants to be told.

Go: github.com/coreos/go-systemd/v22/daemon (sdnotify.go, watchdog.go)
"""

from __future__ import annotations

import os
import socket

from pkg.golang import strconv

READY = b"READY=1"
WATCHDOG = b"WATCHDOG=1"


def notify(state: bytes) -> bool:
    """Tell systemd; False where nobody wants to be told. Raises OSError."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(state, f"\0{path[1:]}" if path.startswith("@") else path)
    return True


def watchdog_timeout() -> float | None:
    """Seconds after which systemd kills this process if it has not been told WATCHDOG; None if it never does.

    Raises ValueError.
    """
    text, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not text:
        return None
    microseconds = strconv.atoi(text)
    if microseconds <= 0:
        raise ValueError(f"WATCHDOG_USEC must be positive, got {microseconds}")
    if pid and strconv.atoi(pid) != os.getpid():
        return None  # it was meant for the process that has started this one
    return microseconds / 1_000_000
