"""Call a handler without sockets, or serve it on a socket that a test connects to."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pkg import golang
from pkg.golang.http.conn import Conn
from pkg.golang.http.connection import run_handler
from pkg.golang.http.headers import Headers
from pkg.golang.http.request import Body, Request, parse_path
from pkg.golang.http.response import ClientGone, Handler, ResponseWriter
from pkg.golang.http.server import Server

_TIMEOUT = 30.0


@dataclass(slots=True)
class Recorded:
    """Hold a response as the client would see it.

    `parts` are the pieces that were sent at once. `may_pause` says that the response is a stream.
    """

    status: int = 0
    headers: Headers = field(default_factory=Headers)
    parts: list[bytes] = field(default_factory=list)
    cut_short: bool = False
    may_pause: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class _Transport:
    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def start(self, status: int, headers: Headers, first: bytes) -> None:
        self._recorded.status = status
        self._recorded.headers = headers
        if first:
            self._recorded.parts.append(first)

    def data(self, data: memoryview) -> None:
        self._recorded.parts.append(bytes(data))

    def end(self) -> None:
        pass

    def let_client_pause(self) -> None:
        self._recorded.may_pause = True

    def hijack(self) -> tuple[Conn, bytes]:
        raise RuntimeError("a recorded response has no connection to take over")


def request(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    peer_certificates: list[bytes] | None = None,
    ctx: golang.Context | None = None,
) -> Request:
    """Return a request like one that the server makes. Raise BadRequest."""
    parts = iter([body])
    return Request(
        method=method,
        target=target,
        path=parse_path(target),
        headers=Headers((headers or {}).items()),
        body=Body(lambda: next(parts, b""), 1 << 20),
        remote_addr=("192.0.2.1", 1234),
        peer_certificates=peer_certificates or [],
        tls=True,
        ctx=ctx or golang.background(),
    )


def record(
    handler: Handler,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    peer_certificates: list[bytes] | None = None,
    ctx: golang.Context | None = None,
) -> Recorded:
    """Run the handler for a request as the server would, and return the response."""
    recorded = Recorded()
    w = ResponseWriter(_Transport(recorded), head=method == "HEAD")
    try:
        run_handler(handler, w, lambda: request(method, target, headers, body, peer_certificates, ctx))
        w.finish()
    except ClientGone:
        recorded.cut_short = True
    return recorded


@contextmanager
def serving(handler: Handler, *, unix: str = "", **options: Any) -> Iterator[Server]:
    """Serve on a free port of this machine, or on a unix socket at the given path."""
    server = Server(handler, name="test", **options)
    if unix:
        server.listen_unix(unix)
    else:
        server.listen("127.0.0.1", 0)
    thread = golang.go(server.serve, name="test-server")
    try:
        yield server
    finally:
        server.close()
        thread.join(_TIMEOUT)
        assert not thread.is_alive()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=_TIMEOUT)


def exchange(server: Server, data: bytes) -> bytes:
    """Send all of the data and read until the server ends the connection."""
    with connect(server) as sock:
        sock.sendall(data)
        return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    """Read until the peer ends the connection."""
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
