"""Connect to the server that a URL names.

Go: k8s.io/apimachinery/pkg/util/proxy/dial.go
"""

from __future__ import annotations

import socket
import time
from urllib.parse import SplitResult

from pkg import golang
from pkg.golang import net
from pkg.golang.http.conn import Conn, PlainConn

# `DIAL_TIMEOUT` is the time limit, in seconds, for the connection and for the exchange before the streams.
DIAL_TIMEOUT = 30.0


def dial_url(url: SplitResult) -> Conn:
    """Connect to the server of the URL.

    Raise OSError, or ValueError if the scheme is neither http nor https. The certificate of an https server is verified
    against the machine's authorities, as in Go.
    """
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"unknown scheme or host: {url.geturl()}")
    port = url.port or (443 if url.scheme == "https" else 80)
    ctx, cancel = golang.with_timeout(golang.background(), DIAL_TIMEOUT)
    try:
        sock = net.dial_parallel(ctx, net.lookup_host(ctx, url.hostname, port), _set_options)
    finally:
        cancel()
    try:
        return PlainConn(sock) if url.scheme == "http" else _secure(sock, url.hostname)
    except BaseException:
        sock.close()
        raise


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _secure(sock: socket.socket, host: str) -> Conn:
    # The import is lazy, because loading OpenSSL is slow and few runtimes have streaming servers with TLS. Python's own
    # ssl module cannot close one direction while the other continues.
    from pkg.golang.http import tlsconn

    conn = tlsconn.TLSConn(tlsconn.client_context(), sock, host)
    conn.set_deadline(time.monotonic() + DIAL_TIMEOUT)
    conn.handshake()
    conn.set_deadline(None)
    return conn
