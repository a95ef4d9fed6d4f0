"""Open HTTP/1.1 connections, reuse them, and abort them while a thread reads.

Go: net/http/transport.go (Transport), as k8s.io/client-go/transport/cache.go sets it up,
k8s.io/client-go/util/connrotation

DIVERGES (platform): each request in flight has its own connection, and the caller limits how long the server may be
silent.
Go: k8s.io/apimachinery/pkg/util/net/http.go, SetTransportDefaults: all requests share one HTTP/2 connection, which is
closed when the server does not answer a ping.
Why: Python's library speaks HTTP/1.1 only. A ping would test the nearest proxy, and not the server behind it.
Test: pkg/client_go/rest/client_test.py:test_requests_at_the_same_time_have_connections_of_their_own,
pkg/client_go/rest/answers_test.py:test_silent_watch_ends
"""

from __future__ import annotations

import base64
import http.client
import io
import math
import socket
import ssl
import threading
import urllib.parse
import weakref
from time import monotonic

from pkg import golang
from pkg.client_go.tools import metrics
from pkg.golang import net

# These are the time limits, in seconds, for the connection, for a proxy's response to CONNECT, and for the TLS
# handshake.
CONNECT_TIMEOUT = 30.0
PROXY_CONNECT_TIMEOUT = 60.0
TLS_HANDSHAKE_TIMEOUT = 10.0

# The times are in seconds. Go's pings detect a dead peer after 30 s of silence and 15 s without an answer. Here the
# kernel does the same with TCP keepalives.
_KEEPALIVE_IDLE = 30
_KEEPALIVE_INTERVAL = 5
_KEEPALIVE_COUNT = 3
_USER_TIMEOUT_MS = 45_000

# The pool keeps this many idle connections, each for this many seconds.
MAX_IDLE_CONNECTIONS = 25
IDLE_CONNECTION_TIMEOUT = 90.0

# `MAX_CHUNK_LINE_LENGTH` is the maximum length, in bytes, of the line before a chunk. `MAX_CHUNK_SIZE_DIGITS` is the
# maximum number of hexadecimal digits in the chunk's size.
MAX_CHUNK_LINE_LENGTH = 4096
MAX_CHUNK_SIZE_DIGITS = 16

_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
# An error shows at most this many bytes of data that cannot be parsed.
_SHOWN = 40


class TransportError(OSError):
    """Signal that the server sent no response.

    The text is one line that says what was tried and why it failed.
    """


class ConnectionLostError(TimeoutError):
    """Signal that the server was silent for so long that the connection counts as dead."""


class ConnectionTracker:
    """Track all open connections, so that they can be closed at once.

    All methods are thread-safe.

    Go: k8s.io/client-go/util/connrotation/connrotation.go
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._failed = False

    def add(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)

    def note_failure(self) -> None:
        """Record that a request got no response."""
        with self._lock:
            self._failed = True

    def close_all(self) -> None:
        """Abort all connections; requests on them fail, and watches end."""
        with self._lock:
            connections, self._connections = list(self._connections), weakref.WeakSet()
            self._failed = False
        for connection in connections:
            connection.abort()

    def close_all_if_failing(self) -> None:
        """Abort all connections, if a request got no response since the last call of close_all.

        DIVERGES (safer): repeated failures of heartbeats end all connections, but only if a request got no response.
        Go: cmd/kubelet/app/server.go, buildKubeletClientConfig: the Go kubelet ends the idle connections, or with
        DISABLE_HTTP2 all connections, whatever the reason for the failures is.
        Why: with HTTP/1.1 only new connections can replace dead ones. But a server that refuses requests is alive, and
        its watches need not restart.
        Test: kubelet/certificate/transport_test.py:test_close_all_ends_a_watch_of_a_client_of_a_copy,
        pkg/client_go/rest/client_test.py:test_server_that_refuses_keeps_its_watches
        """
        with self._lock:
            failed = self._failed
        if failed:
            self.close_all()


class _Head:
    """Read the lines of a response's head, and fail if one is truncated."""

    def __init__(self, fp: io.BufferedReader) -> None:
        self._fp = fp
        self.close = fp.close

    def readline(self, limit: int) -> bytes:
        """Return the next line; raise HTTPException at the end of the connection, and OSError."""
        line = self._fp.readline(limit)
        if not line.endswith(b"\n") and len(line) < limit:
            raise http.client.IncompleteRead(line)
        return line


class Response(http.client.HTTPResponse):
    """Read a response, and require a complete head and valid chunk sizes."""

    def begin(self) -> None:
        """Read the head of the response; raise HTTPException or OSError on failure.

        The standard library would treat a truncated head as one without a length, and return an empty response.
        """
        fp = self.fp
        self.fp = _Head(fp)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            self.fp = fp

    def _read_status(self) -> tuple[str, int, str]:
        """Read the status line, and skip every informational response; raise HTTPException or OSError on failure.

        The standard library skips only status 100. It would treat another informational response, such as 103, as the
        final one, and the real response as the one for the connection's next request.
        """
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status == http.HTTPStatus.SWITCHING_PROTOCOLS:
            raise http.client.HTTPException("the server switched protocols unasked")
        return version, http.HTTPStatus.CONTINUE if status < http.HTTPStatus.OK else status, reason

    def _read_next_chunk_size(self) -> int:
        """Return the size of the next chunk; raise HTTPException or OSError on failure.

        The standard library would also accept -1, 0x10 and 1_000 as sizes.
        """
        line = self.fp.readline(MAX_CHUNK_LINE_LENGTH + 1)
        digits = line.partition(b";")[0].rstrip()
        ok = 0 < len(digits) <= MAX_CHUNK_SIZE_DIGITS and _HEXADECIMAL.issuperset(digits)
        if not (ok and line.endswith(b"\n")):
            self._close_conn()  # type: ignore[attr-defined]
            raise http.client.HTTPException(f"invalid chunk size {line[:_SHOWN]!r}")
        return int(digits, 16)

    def check_framing(self) -> None:
        """Raise HTTPException if the headers do not give the body's length in a valid way.

        The standard library ignores such headers.
        """
        length, encoding = self.headers.get("Content-Length"), self.headers.get("Transfer-Encoding")
        if length is not None and not (length.isascii() and length.strip().isdigit()):
            raise http.client.HTTPException(f"bad Content-Length {length[:_SHOWN]!r}")
        if encoding is not None and not self.chunked:
            raise http.client.HTTPException(f"unsupported transfer encoding {encoding[:_SHOWN]!r}")


class Connection(http.client.HTTPConnection):
    """Represent one connection, which one thread uses at a time; any thread may call abort."""

    auto_open = 0

    def __init__(
        self,
        url: urllib.parse.SplitResult,
        context: ssl.SSLContext | None,
        server_name: str = "",
        proxy: urllib.parse.SplitResult | None = None,
    ) -> None:
        """Prepare a connection.

        `context` is for https. server_name replaces the URL's host when the server's certificate is verified.
        """
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        if proxy is None:
            super().__init__(host, port)
        else:
            super().__init__(proxy.hostname or "", proxy.port or 80)
        self.tls_context = context
        # A trailing dot marks a DNS name as fully qualified. Names in certificates have no trailing dot.
        self._server_name = (server_name or host).removesuffix(".")
        # abort ends this context.
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._lock = threading.Lock()  # The lock guards _owned.
        self._owned: socket.socket | None = None
        self._deadline = math.inf
        self._idle: float | None = None
        self.idle_since = 0.0
        self.used = False
        if proxy is not None and context is not None:
            headers = {"Proxy-Authorization": basic_auth(proxy)} if proxy.username else {}
            self.set_tunnel(f"[{host}]" if ":" in host else host, port, headers)

    def connect(self) -> None:
        """Connect to the server or the proxy; raise OSError on failure, including a missed deadline."""
        deadline = self._deadline
        self.sock = self._dial(min(deadline, monotonic() + CONNECT_TIMEOUT))
        try:
            if self._tunnel_host:  # type: ignore[attr-defined]
                self._deadline = min(deadline, monotonic() + PROXY_CONNECT_TIMEOUT)
                self._tunnel()  # type: ignore[attr-defined]
            if self.tls_context is not None:
                # The handshake comes last, so that abort finds the socket on which the thread waits.
                self.sock = self.tls_context.wrap_socket(
                    self.sock, server_hostname=self._server_name, do_handshake_on_connect=False
                )
                self._own(self.sock)
                self._deadline = min(deadline, monotonic() + TLS_HANDSHAKE_TIMEOUT)
                self.sock.settimeout(self.time_left())
                self.sock.do_handshake()
        finally:
            self._deadline = deadline

    def abort(self) -> None:
        """End the connection from any thread; calls that block on it fail at once."""
        self._cancel()
        with self._lock:
            if self._owned is not None:
                net.hang_up(self._owned)

    def set_deadline(self, deadline: float, idle: float | None = None) -> None:
        """Set until when all transfers must be complete, and for how many seconds the other end may be silent.

        `deadline` is a time of time.monotonic; infinity means no limit. After either limit, transfers raise
        TimeoutError.
        """
        self._deadline = deadline
        self._idle = idle

    def time_left(self) -> float | None:
        """Return how many seconds the next wait may take, or None for no limit.

        Raise TimeoutError after the deadline.
        """
        if self._deadline == math.inf:
            return self._idle
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left if self._idle is None else min(left, self._idle)

    def send(self, data: bytes | memoryview) -> None:  # type: ignore[override]
        """Send all data before the deadline.

        The socket's own sendall would restart its time-out after each part that the other end accepts.
        """
        left = memoryview(data).cast("B")
        while left:
            self.sock.settimeout(self.time_left())
            left = left[self.sock.send(left) :]

    def getresponse(self) -> Response:
        """Return the response with its head; raise OSError, HTTPException or ValueError on failure."""
        response = super().getresponse()
        assert isinstance(response, Response)
        response.check_framing()
        return response

    def response_class(self, sock: socket.socket, method: str | None = None) -> Response:  # type: ignore[override]
        """Return a response that reads from the socket within the deadline; http.client calls this."""
        return Response(_Deadlined(self, sock), method=method)  # type: ignore[arg-type]

    def is_stale(self) -> bool:
        """Report whether the other end has closed the connection, or sent unsolicited data."""
        if self.sock is None or monotonic() - self.idle_since > IDLE_CONNECTION_TIMEOUT:
            return True
        try:
            if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
                # The data arrived with the end of the last response, and is no longer in the kernel's socket buffer.
                return True
            self.sock.settimeout(0)
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _dial(self, deadline: float) -> socket.socket:
        ctx, cancel = golang.with_deadline(self._ctx, deadline)
        try:
            start = monotonic()
            found = net.lookup_host(ctx, self.host, self.port)
            metrics.resolver_latency(self.host, monotonic() - start)
            sock = net.dial_parallel(ctx, found, _set_options)
        finally:
            cancel()
        self._own(sock)
        return sock

    def _own(self, sock: socket.socket) -> None:
        """Keep this socket for abort; close it and raise ConnectionAbortedError if abort was called before."""
        with self._lock:
            self._owned = sock
            if self._ctx.err() is not None:
                sock.close()
                raise ConnectionAbortedError("connection was closed")


class _Deadlined(io.RawIOBase):
    """Provide the incoming data in the form that http.client reads, within the connection's deadline."""

    def __init__(self, connection: Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock
        # This file keeps the socket open after http.client has detached it from the connection, which happens before
        # the last response of a connection is read.
        self._file = sock.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._sock.settimeout(self._connection.time_left())
        return self._file.readinto(buffer) or 0

    def close(self) -> None:
        self._file.close()
        super().close()


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_COUNT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)


def basic_auth(url: urllib.parse.SplitResult) -> str:
    """Return the header value for the user and password in the URL."""
    user, password = (urllib.parse.unquote(part or "") for part in (url.username, url.password))
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class ConnectionPool:
    """Keep the idle connections to one server.

    All methods are thread-safe.
    """

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
        self._lock = threading.Lock()  # The lock guards _idle.
        self._idle: list[Connection] = []

    def get(self, context: ssl.SSLContext | None, fresh: bool = False) -> Connection:
        """Return an idle connection with this context, or a new one that is not connected yet.

        With `fresh`, always return a new one. Idle connections with other contexts are closed, because they present a
        certificate that is no longer ours.
        """
        while not fresh and (connection := self._take(context)) is not None:
            if not connection.is_stale():
                return connection
            connection.close()
        connection = Connection(self._url, context, self._server_name, self._proxy)
        self._tracker.add(connection)
        return connection

    def put(self, connection: Connection) -> None:
        """Keep a connection whose response was read to its end, and close those that were idle for too long."""
        now = monotonic()
        connection.idle_since = now
        connection.used = True
        with self._lock:
            # The newest connection is taken first and put back last, so the list is sorted by time.
            old = [one for one in self._idle if now - one.idle_since > IDLE_CONNECTION_TIMEOUT]
            del self._idle[: len(old)]
            if connection.sock is not None and len(self._idle) < MAX_IDLE_CONNECTIONS:
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
