"""Send notifications to systemd, and read the watchdog timeout that systemd expects.

Go: github.com/coreos/go-systemd/v22/daemon (sdnotify.go, watchdog.go)
"""

from __future__ import annotations

import os
import socket

from pkg.golang import strconv

READY = b"READY=1"
WATCHDOG = b"WATCHDOG=1"


def notify(state: bytes) -> bool:
    """Send the state to systemd; return False if systemd did not ask for notifications. Raise OSError."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(state, f"\0{path[1:]}" if path.startswith("@") else path)
    return True


def watchdog_timeout() -> float | None:
    """Return the seconds after which systemd kills this process if it sends no WATCHDOG; None if systemd never does.

    Raise ValueError if the environment variables are invalid.
    """
    text, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not text:
        return None
    microseconds = strconv.atoi(text)
    if microseconds <= 0:
        raise ValueError(f"WATCHDOG_USEC must be positive, got {microseconds}")
    if pid and strconv.atoi(pid) != os.getpid():
        return None  # The variable was meant for the parent process.
    return microseconds / 1_000_000
