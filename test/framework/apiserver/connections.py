"""Serve HTTP/1.1 on sockets, with persistent connections, chunked responses, and connections that a handler takes over.

The module is small on purpose: the standard library's handler takes more time per request than the rest of the server.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from pkg import golang, klog
from pkg.golang.net import hang_up

from .interfaces import AnswerFault, Cut, Request

_MAX_HEAD = 1 << 20
_MAX_BODY = 16 << 20
_HANDSHAKE_TIMEOUT = 10.0
_READ_SIZE = 1 << 16
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class BadRequest(Exception):
    """Signal that a client sent something that is not HTTP."""


class Connection:
    """Serve one client's connection. Only its own thread may use it, except for `cut`, which any thread may call."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self.peer_certificate: bytes | None = None
        if isinstance(sock, ssl.SSLSocket):
            self.peer_certificate = sock.getpeercert(binary_form=True)

    def read_request(self) -> Request | None:
        """Return the next request, or None if the client has closed the connection.

        Raise BadRequest if the client has sent something else.
        """
        head = self._read_head()
        if head is None:
            return None
        lines = head.decode("latin-1").split("\r\n")
        parts = lines[0].split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise BadRequest(f"malformed request line {lines[0]!r}")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequest(f"malformed header {line!r}")
            name = name.strip().lower()
            headers[name] = f"{headers[name]},{value.strip()}" if name in headers else value.strip()
        url = urlsplit(parts[1])
        return Request(
            method=parts[0],
            path=unquote(url.path),
            query=parse_qs(url.query, keep_blank_values=True) if url.query else {},
            headers=headers,
            body=self._read_body(headers),
            peer_certificate=self.peer_certificate,
        )

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def take_buffer(self) -> bytes:
        """Return the data that was read beyond the request, for a handler that takes the connection over."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def cut(self) -> None:
        hang_up(self.sock)

    def _fill(self) -> bool:
        data = self.sock.recv(_READ_SIZE)
        self._buffer += data
        return bool(data)

    def _read_head(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise BadRequest("headers too large")
            if not self._fill():
                return None
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head.lstrip(b"\r\n")

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > _MAX_BODY:
            raise BadRequest(f"unacceptable content length {length!r}")
        return self._read_exactly(int(length))

    def _read_exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not self._fill():
                raise BadRequest("body ends early")
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _read_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not self._fill():
                raise BadRequest("body ends early")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            try:
                size = int(self._read_line().partition(b";")[0], 16)
            except ValueError as err:
                raise BadRequest("malformed chunk") from err
            if size == 0:
                while self._read_line():
                    pass
                return bytes(body)
            body += self._read_exactly(size)
            self._read_exactly(2)


@dataclass(slots=True)
class Responder:
    """Send the response to one request. If `fault` is not None, it changes the response first."""

    connection: Connection
    keep_alive: bool
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    code: int = 0
    fault: AnswerFault | None = None

    def warn(self, text: str) -> None:
        """Add a warning to the response, unless it has the same warning already or a header cannot contain the text.

        Go: net.NewWarningHeader
        """
        if text not in self.warnings and text.isprintable():
            self.warnings.append(text)

    def send(self, code: int, body: bytes, content_type: str = "application/json") -> None:
        length = len(body)
        if self.fault is not None:
            answer = self.fault.answer(code, body)
            code, body, length = answer.code, answer.body, answer.length
        self.code = code
        self.headers["Content-Type"] = content_type
        self.headers["Content-Length"] = str(length)
        self.connection.send(self._head() + body)
        if length != len(body):
            raise Cut

    def start_stream(self, content_type: str) -> None:
        """Start a response that `chunk` continues and `end` ends."""
        self.code = 200
        self.headers["Content-Type"] = content_type
        self.headers["Transfer-Encoding"] = "chunked"
        self.connection.send(self._head())

    def chunk(self, data: bytes) -> None:
        self.connection.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.connection.send(b"0\r\n\r\n")

    def take_over(self) -> Connection:
        """Return the connection. From now on the handler uses it without HTTP."""
        self.keep_alive = False
        return self.connection

    def _head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.code} {_PHRASES.get(self.code, '')}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Warning: 299 - {_quoted(text)}" for text in self.warnings]
        if not self.keep_alive:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


Handler = Callable[[Request, Responder], None]


class Listener:
    """Accept connections and serve each in its own thread."""

    def __init__(
        self, host: str, port: int, handler: Handler, *, ssl_context: ssl.SSLContext | None, refuse: Callable[[], bool]
    ) -> None:
        self._handler = handler
        self._ssl_context = ssl_context
        self._refuse = refuse
        self._socket = socket.create_server((host, port), backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        # _lock guards the two fields below.
        self._connections: dict[socket.socket, golang.Thread | None] = {}
        self._closed = False
        self._thread = golang.go(self._accept, name=f"apiserver-accept-{self.port}")

    def close(self) -> None:
        """End all connections and wait until their threads have ended."""
        with self._lock:
            self._closed = True
            connections = dict(self._connections)
        hang_up(self._socket)
        self._thread.join()
        self._socket.close()
        for sock in connections:
            hang_up(sock)
        for thread in connections.values():
            if thread is not None:
                thread.join()

    def cut_connections(self) -> None:
        """End all connections at once, whatever their state."""
        with self._lock:
            connections = list(self._connections)
        for sock in connections:
            hang_up(sock)

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._socket.accept()
            except OSError:
                return
            if self._refuse():
                sock.close()
                continue
            with self._lock:
                if self._closed:
                    sock.close()
                    return
                self._connections[sock] = None
                # The lock is held while the thread starts, so that `close` finds the thread and can wait for it.
                self._connections[sock] = golang.go(self._serve, sock, name=f"apiserver-connection-{address[1]}")

    def _serve(self, sock: socket.socket) -> None:
        secured = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl_context is not None:
                secured = self._handshake(sock, self._ssl_context)
            self._serve_requests(Connection(secured))
        except (OSError, BadRequest) as err:
            klog.v(4).info_s("Connection ended", err=str(err))
        finally:
            with self._lock:
                self._connections.pop(sock, None)
            secured.close()
            sock.close()

    def _handshake(self, sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        # This is a duplicate because wrapping takes the descriptor away from the socket that `close` knows.
        secured = context.wrap_socket(sock.dup(), server_side=True, do_handshake_on_connect=False)
        try:
            secured.settimeout(_HANDSHAKE_TIMEOUT)
            secured.do_handshake()
            secured.settimeout(None)
        except BaseException:
            secured.close()
            raise
        return secured

    def _serve_requests(self, connection: Connection) -> None:
        while True:
            try:
                request = connection.read_request()
            except BadRequest as err:
                body = f"400 Bad Request: {err}".encode()
                Responder(connection, keep_alive=False).send(400, body, "text/plain; charset=utf-8")
                return
            if request is None:
                return
            responder = Responder(connection, "close" not in request.headers.get("connection", "").lower())
            self._handler(request, responder)
            if not responder.keep_alive:
                return
