"""Connections to the server that a URL names.

Go: k8s.io/apimachinery/pkg/util/proxy/dial.go
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from urllib.parse import SplitResult

from pkg.golang.http.conn import Conn, PlainConn, WaitingConn

# In seconds, for the connection and for what is said before the streams.
DIAL_TIMEOUT = 30.0


class TLSClientConn(WaitingConn):
    """A connection over the standard library's TLS, that does not block. Go: tls.Conn"""

    def __init__(self, secured: ssl.SSLSocket) -> None:
        super().__init__(secured)
        self._secured = secured

    def recv(self, n: int) -> bytes:
        while True:
            try:
                return self._secured.recv(n)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as err:
                self._wait_if_blocking(_event(err))

    def send(self, data: bytes | memoryview) -> int:
        while True:
            try:
                return self._secured.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as err:
                self._wait_if_blocking(_event(err))

    def sendall(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._secured.send(view) :]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as err:
                self._wait(_event(err))

    def shutdown_write(self) -> None:
        # It sends the end, and then asks for the other side's, which is not there yet. If data is, that is an error,
        # which ends the connection: the standard library cannot send the end alone.
        with contextlib.suppress(ssl.SSLWantReadError):
            self._secured.unwrap()

    def pending(self) -> bytes:
        count = self._secured.pending()
        return self._secured.recv(count) if count else b""

    def close(self) -> None:
        self._secured.close()


def _event(err: ssl.SSLError) -> int:

    return select.POLLIN if isinstance(err, ssl.SSLWantReadError) else select.POLLOUT


def dial_url(url: SplitResult) -> Conn:
    """Raises OSError; ValueError when the URL is neither of http nor of https.

    The certificate of an https server is checked against the machine's authorities, as in Go.
    """
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"unknown scheme or host: {url.geturl()}")
    port = url.port or (443 if url.scheme == "https" else 80)
    sock = socket.create_connection((url.hostname, port), timeout=DIAL_TIMEOUT)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if url.scheme == "http":
            return PlainConn(sock)
        return TLSClientConn(ssl.create_default_context().wrap_socket(sock, server_hostname=url.hostname))
    except BaseException:
        sock.close()
        raise
