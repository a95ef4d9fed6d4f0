"""HTTP/1.1 connections: opening them, using them again, and ending them while somebody reads.

Go: net/http.Transport as k8s.io/client-go/transport/cache.go sets it up, k8s.io/client-go/util/connrotation

DIVERGES: Go multiplexes all requests over one HTTP/2 connection and pings it; here every request that runs has a
connection of its own, and the kernel finds out whether the other end is alive.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import urllib.parse
import weakref
from time import monotonic

from pkg.client_go.tools import metrics

# Seconds. Go's pings notice a dead peer after 30 s of silence and 15 s without an answer; so does the kernel here.
_CONNECT_TIMEOUT = 30.0
_KEEPALIVE_IDLE = 30
_KEEPALIVE_INTERVAL = 5
_KEEPALIVE_COUNT = 3
_USER_TIMEOUT_MS = 45_000

_MAX_IDLE = 25
_IDLE_TIMEOUT = 90.0


class TransportError(OSError):
    """No answer came from the server; the text is one line that says what was tried and why it failed."""


class ConnectionTracker:
    """All open connections, so that they can be closed at once. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _connections
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()

    def add(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)

    def close_all(self) -> None:
        """End all connections, those in use among them: their requests fail and their watches end."""
        with self._lock:
            connections, self._connections = list(self._connections), weakref.WeakSet()
        for connection in connections:
            connection.abort()


class Connection(http.client.HTTPConnection):
    """One connection; used by one thread at a time, but abort may come from any."""

    def __init__(
        self,
        url: urllib.parse.SplitResult,
        context: ssl.SSLContext | None,
        server_name: str = "",
        proxy: urllib.parse.SplitResult | None = None,
    ) -> None:
        """`context` is for https; a server_name replaces the host's in what the server must prove."""
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        via = proxy or url
        super().__init__(via.hostname or "", via.port or port, timeout=_CONNECT_TIMEOUT)
        self.tls_context = context
        self._server_name = server_name or host
        self._lock = threading.Lock()  # guards _socket, _aborted
        self._socket: socket.socket | None = None
        self._aborted = False
        self.idle_since = 0.0
        self.used = False
        if proxy is not None and context is not None:
            headers = {"Proxy-Authorization": basic_auth(proxy)} if proxy.username else {}
            self.set_tunnel(host, port, headers)

    def connect(self) -> None:
        self.sock = self._dial()
        if self._tunnel_host:  # type: ignore[attr-defined]
            self._tunnel()  # type: ignore[attr-defined]
        if self.tls_context is not None:
            # The handshake comes last, so that an abort finds the socket that waits for the other end.
            self.sock = self.tls_context.wrap_socket(
                self.sock, server_hostname=self._server_name, do_handshake_on_connect=False
            )
            self._own(self.sock)
            self.sock.do_handshake()

    def abort(self) -> None:
        """End it from any thread: whatever blocks on it fails at once."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                try:
                    # Not that of SSLSocket, which would take the TLS state from under the reader.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                except OSError:
                    pass  # not connected, or not any more

    def set_deadline(self, seconds: float | None) -> None:
        """Let each wait for the other end take no longer; None lets it take for ever."""
        self.timeout = min(_CONNECT_TIMEOUT, seconds) if seconds is not None else _CONNECT_TIMEOUT
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def is_stale(self) -> bool:
        """Whether the other end has closed it, or sent something that nobody asked for."""
        if self.sock is None or monotonic() - self.idle_since > _IDLE_TIMEOUT:
            return True
        try:
            self.sock.settimeout(0)
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _dial(self) -> socket.socket:
        """DIVERGES: looking up the name cannot be ended before it ends by itself."""
        start = monotonic()
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        metrics.resolver_latency(self.host, monotonic() - start)
        error: OSError | None = None
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                _set_options(sock)
                self._own(sock)
                sock.settimeout(self.timeout)
                sock.connect(address)
                return sock
            except OSError as err:
                sock.close()
                error = err
        raise error or OSError(f"no address found for {self.host}")

    def _own(self, sock: socket.socket) -> None:
        with self._lock:
            if self._aborted:
                sock.close()
                raise ConnectionAbortedError("connection was closed")
            self._socket = sock


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_COUNT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)


def basic_auth(url: urllib.parse.SplitResult) -> str:
    """The header's value for the user and password in the URL."""
    user, password = (urllib.parse.unquote(part or "") for part in (url.username, url.password))
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class ConnectionPool:
    """Idle connections to one server. Safe from any thread."""

    def __init__(
        self,
        url: urllib.parse.SplitResult,
        server_name: str,
        proxy: urllib.parse.SplitResult | None,
        tracker: ConnectionTracker,
    ) -> None:
        self._url = url
        self._server_name = server_name
        self._proxy = proxy
        self._tracker = tracker
        self._lock = threading.Lock()  # guards _idle
        self._idle: list[Connection] = []

    def get(self, context: ssl.SSLContext | None, fresh: bool = False) -> Connection:
        """An idle connection made with that context, or a new one, not yet connected; always that if fresh.

        Idle ones of other contexts are closed: they show a certificate that is no longer ours.
        """
        while not fresh and (connection := self._take(context)) is not None:
            if not connection.is_stale():
                return connection
            connection.close()
        connection = Connection(self._url, context, self._server_name, self._proxy)
        self._tracker.add(connection)
        return connection

    def put(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end, and close those that nobody has needed for long."""
        now = monotonic()
        connection.idle_since = now
        connection.used = True
        with self._lock:
            # The newest is taken first and put back last: the list is in the order of the times.
            old = [one for one in self._idle if now - one.idle_since > _IDLE_TIMEOUT]
            del self._idle[: len(old)]
            if connection.sock is not None and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                old.append(connection)
        for one in old:
            one.close()

    def close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self, context: ssl.SSLContext | None) -> Connection | None:
        retired: list[Connection] = []
        try:
            with self._lock:
                while self._idle:
                    connection = self._idle.pop()
                    if connection.tls_context is context:
                        return connection
                    retired.append(connection)
            return None
        finally:
            for connection in retired:
                connection.close()
