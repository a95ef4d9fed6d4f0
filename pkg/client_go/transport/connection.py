"""HTTP/1.1 connections: opening them, using them again, and ending them while somebody reads.

Go: net/http/transport.go (Transport), as k8s.io/client-go/transport/cache.go sets it up,
k8s.io/client-go/util/connrotation

DIVERGES (platform): each request that runs has a connection of its own, and the caller says how long the server may be
silent.
Go: k8s.io/apimachinery/pkg/util/net/http.go, SetTransportDefaults: all requests share one HTTP/2 connection, which is
closed when a ping is not answered.
Why: Python's library speaks HTTP/1.1 only. A ping would tell of the next proxy, and not of the server behind it.
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

# Seconds for connecting, for the answer of a proxy to CONNECT, and for the TLS handshake.
CONNECT_TIMEOUT = 30.0
PROXY_CONNECT_TIMEOUT = 60.0
TLS_HANDSHAKE_TIMEOUT = 10.0

# Seconds. Go's pings notice a dead peer after 30 s of silence and 15 s without an answer; so does the kernel here.
_KEEPALIVE_IDLE = 30
_KEEPALIVE_INTERVAL = 5
_KEEPALIVE_COUNT = 3
_USER_TIMEOUT_MS = 45_000

# Idle connections that are kept, and for how many seconds.
MAX_IDLE_CONNECTIONS = 25
IDLE_CONNECTION_TIMEOUT = 90.0

# Bytes of the line before a chunk, and the hexadecimal digits of the chunk's size.
MAX_CHUNK_LINE_LENGTH = 4096
MAX_CHUNK_SIZE_DIGITS = 16

_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
# How much of what cannot be understood an error shows.
_SHOWN = 40


class TransportError(OSError):
    """No answer came from the server; the text is one line that says what was tried and why it failed."""


class ConnectionLostError(TimeoutError):
    """The server has been silent for so long that the connection is taken for dead."""


class ConnectionTracker:
    """All open connections, so that they can be closed at once. Safe from any thread.

    Go: k8s.io/client-go/util/connrotation/connrotation.go
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._failed = False

    def add(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)

    def note_failure(self) -> None:
        """A request got no answer."""
        with self._lock:
            self._failed = True

    def close_all(self) -> None:
        """End all connections, those in use among them: their requests fail and their watches end."""
        with self._lock:
            connections, self._connections = list(self._connections), weakref.WeakSet()
            self._failed = False
        for connection in connections:
            connection.abort()

    def close_all_if_failing(self) -> None:
        """close_all, if a request has got no answer since the last time.

        DIVERGES (safer): repeated failures of heartbeats end all connections, but only if a request has got no answer.
        Go: cmd/kubelet/app/server.go, buildKubeletClientConfig: they end the idle connections, or with DISABLE_HTTP2
        all of them, whatever the reason is.
        Why: with HTTP/1.1 only a new connection gets past a dead one; but a server that refuses is alive, and its
        watches need not begin anew.
        Test: kubelet/certificate/transport_test.py:test_close_all_ends_a_watch_of_a_client_of_a_copy,
        pkg/client_go/rest/client_test.py:test_server_that_refuses_keeps_its_watches
        """
        with self._lock:
            failed = self._failed
        if failed:
            self.close_all()


class _Head:
    """The lines of an answer's head, none of which may be missing."""

    def __init__(self, fp: io.BufferedReader) -> None:
        self._fp = fp
        self.close = fp.close

    def readline(self, limit: int) -> bytes:
        """Raises HTTPException at the end of the connection, and OSError."""
        line = self._fp.readline(limit)
        if not line.endswith(b"\n") and len(line) < limit:
            raise http.client.IncompleteRead(line)
        return line


class Response(http.client.HTTPResponse):
    """An answer, whose head must be complete, and whose chunks must have the sizes that they say."""

    def begin(self) -> None:
        """The standard library takes a head that breaks off for one without a length, and so for an empty answer.
        Raises HTTPException and OSError.
        """
        fp = self.fp
        self.fp = _Head(fp)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            self.fp = fp

    def _read_status(self) -> tuple[str, int, str]:
        """The standard library passes over 100 alone of what may come before an answer, as 103 may. It takes any other
        for the answer, and the answer for that to the connection's next request. Raises HTTPException and OSError.
        """
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status == http.HTTPStatus.SWITCHING_PROTOCOLS:
            raise http.client.HTTPException("the server switches protocols, which nobody has asked for")
        return version, http.HTTPStatus.CONTINUE if status < http.HTTPStatus.OK else status, reason

    def _read_next_chunk_size(self) -> int:
        """The standard library takes -1, 0x10 and 1_000 for sizes too. Raises HTTPException and OSError."""
        line = self.fp.readline(MAX_CHUNK_LINE_LENGTH + 1)
        digits = line.partition(b";")[0].rstrip()
        ok = 0 < len(digits) <= MAX_CHUNK_SIZE_DIGITS and _HEXADECIMAL.issuperset(digits)
        if not (ok and line.endswith(b"\n")):
            self._close_conn()  # type: ignore[attr-defined]
            raise http.client.HTTPException(f"invalid chunk size {line[:_SHOWN]!r}")
        return int(digits, 16)

    def check_framing(self) -> None:
        """Raises HTTPException if the headers do not say how long the body is, which the standard library overlooks."""
        length, encoding = self.headers.get("Content-Length"), self.headers.get("Transfer-Encoding")
        if length is not None and not (length.isascii() and length.strip().isdigit()):
            raise http.client.HTTPException(f"bad Content-Length {length[:_SHOWN]!r}")
        if encoding is not None and not self.chunked:
            raise http.client.HTTPException(f"unsupported transfer encoding {encoding[:_SHOWN]!r}")


class Connection(http.client.HTTPConnection):
    """One connection; used by one thread at a time, but abort may come from any."""

    auto_open = 0

    def __init__(
        self,
        url: urllib.parse.SplitResult,
        context: ssl.SSLContext | None,
        server_name: str = "",
        proxy: urllib.parse.SplitResult | None = None,
    ) -> None:
        """`context` is for https; a server_name replaces the host's in what the server must prove."""
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        if proxy is None:
            super().__init__(host, port)
        else:
            super().__init__(proxy.hostname or "", proxy.port or 80)
        self.tls_context = context
        # A name that ends with a dot is complete for the DNS. In certificates it has none.
        self._server_name = (server_name or host).removesuffix(".")
        # Ends with an abort.
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._lock = threading.Lock()  # guards _owned
        self._owned: socket.socket | None = None
        self._deadline = math.inf
        self._idle: float | None = None
        self.idle_since = 0.0
        self.used = False
        if proxy is not None and context is not None:
            headers = {"Proxy-Authorization": basic_auth(proxy)} if proxy.username else {}
            self.set_tunnel(f"[{host}]" if ":" in host else host, port, headers)

    def connect(self) -> None:
        """Raises OSError, also at the deadline."""
        deadline = self._deadline
        self.sock = self._dial(min(deadline, monotonic() + CONNECT_TIMEOUT))
        try:
            if self._tunnel_host:  # type: ignore[attr-defined]
                self._deadline = min(deadline, monotonic() + PROXY_CONNECT_TIMEOUT)
                self._tunnel()  # type: ignore[attr-defined]
            if self.tls_context is not None:
                # The handshake comes last, so that an abort finds the socket that waits for the other end.
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
        """End it from any thread: whatever blocks on it fails at once."""
        self._cancel()
        with self._lock:
            if self._owned is not None:
                net.hang_up(self._owned)

    def set_deadline(self, deadline: float, idle: float | None = None) -> None:
        """Until when all that is sent and received may take (time.monotonic; infinity is for ever), and for how many
        seconds the other end may be silent. Beyond both TimeoutError is raised.
        """
        self._deadline = deadline
        self._idle = idle

    def time_left(self) -> float | None:
        """Seconds that the next wait for the other end may take, None for ever. Raises TimeoutError."""
        if self._deadline == math.inf:
            return self._idle
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left if self._idle is None else min(left, self._idle)

    def send(self, data: bytes | memoryview) -> None:  # type: ignore[override]
        """A socket's own sendall begins its time-out anew with each part that the other end takes."""
        left = memoryview(data).cast("B")
        while left:
            self.sock.settimeout(self.time_left())
            left = left[self.sock.send(left) :]

    def getresponse(self) -> Response:
        """Raises OSError, HTTPException and ValueError."""
        response = super().getresponse()
        assert isinstance(response, Response)
        response.check_framing()
        return response

    def response_class(self, sock: socket.socket, method: str | None = None) -> Response:  # type: ignore[override]
        """What http.client calls to read an answer: from a socket that keeps to the deadline."""
        return Response(_Deadlined(self, sock), method=method)  # type: ignore[arg-type]

    def is_stale(self) -> bool:
        """Whether the other end has closed it, or sent something that nobody asked for."""
        if self.sock is None or monotonic() - self.idle_since > IDLE_CONNECTION_TIMEOUT:
            return True
        try:
            if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
                return True  # it came with the end of the last answer, and is no longer in the socket
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
        """Let an abort end this socket. Raises ConnectionAbortedError, and closes it, if one has come before."""
        with self._lock:
            self._owned = sock
            if self._ctx.err() is not None:
                sock.close()
                raise ConnectionAbortedError("connection was closed")


class _Deadlined(io.RawIOBase):
    """What comes in on a connection, as http.client wants it, with the connection's deadline."""

    def __init__(self, connection: Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock
        # Keeps the socket open after the connection has let go of it, as http.client does before it reads the last
        # answer of a connection.
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
