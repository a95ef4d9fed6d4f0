"""Whether a plugin is there, without calling it.

Go: HandleConn in pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, google.golang.org/grpc/stats

DIVERGES: Go hears of it from the connection that its calls use. gRPC for Python would look at that connection five
times a second, so here a second one is held open on which nothing is said.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from pkg import golang
from pkg.apimachinery.util import wait

# How every HTTP/2 client begins: the preface, and settings that change nothing.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
# Seconds, at first, until it is tried again to connect.
RECONNECT_DURATION = 1.0
# Seconds that a server may take to greet back.
_GREETING_TIMEOUT = 20.0


def watch_connection(ctx: golang.Context, endpoint: str, changed: Callable[[bool], None]) -> None:
    """Tell `changed` when the server at the socket has greeted, and when it is gone, until ctx is cancelled."""
    backoff = _backoff()
    while ctx.err() is None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as conn:
            stop = golang.after_func(ctx, lambda conn=conn: _shut(conn))  # type: ignore[misc]
            try:
                if _greet(conn, endpoint):
                    backoff = _backoff()
                    changed(True)
                    _read_to_the_end(conn)
            finally:
                stop()
        changed(False)
        ctx.wait(backoff.step())


def _backoff() -> wait.Backoff:
    return wait.Backoff(duration=RECONNECT_DURATION, factor=1.6, jitter=0.2, steps=100, cap=5.0)


def _greet(conn: socket.socket, endpoint: str) -> bool:
    try:
        conn.settimeout(_GREETING_TIMEOUT)
        conn.connect(endpoint)
        conn.sendall(_GREETING)
        return bool(conn.recv(4096))
    except OSError:
        return False


def _read_to_the_end(conn: socket.socket) -> None:
    """What a server says on an idle connection need not be answered: at worst it closes it, and a new one is made."""
    try:
        conn.settimeout(None)
        while conn.recv(4096):
            pass
    except OSError:
        return


def _shut(conn: socket.socket) -> None:
    # It may not be connected yet, or closed already.
    with contextlib.suppress(OSError):
        conn.shutdown(socket.SHUT_RDWR)
