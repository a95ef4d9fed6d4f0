"""Test how requests for an upgrade are forwarded."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pkg import golang
from pkg.apimachinery.util import proxy
from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.proxy.relay import PIECES_IN_TURN, Relay
from pkg.apimachinery.util.proxy.testing import TIMEOUT, FakeRuntime, FakeStreams
from pkg.apimachinery.util.proxy.upgradeaware import _PingsLast
from pkg.golang import http
from pkg.golang.http.conn import PlainConn

UPGRADE = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"


@contextmanager
def passing_on(location: str) -> Iterator[int]:
    server = http.Server(proxy.UpgradeAwareHandler(location).serve_http, name="proxy")
    server.listen("127.0.0.1", 0)
    thread = golang.go(server.serve, name="proxy")
    try:
        yield server.port
    finally:
        server.close()
        thread.join()


def ask(port: int, headers: str, first: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    sock.sendall(f"POST /exec/ns/pod?input=1 HTTP/1.1\r\nHost: node:10250\r\n{headers}\r\n".encode() + first)
    return sock


def answer(sock: socket.socket) -> tuple[str, bytes]:
    """Return the status line and the data after the head, up to the server's Content-Length."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += sock.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < length:
        body += sock.recv(65536)
    return lines[0], body


def test_an_upgraded_connection_is_the_clients() -> None:
    def serve(streams: FakeStreams) -> None:
        assert streams.accept(1) == ["stdin"]
        streams.send("stdin", streams.read("stdin") + b" to you", fin=True)
        assert streams.next() is None

    framer = spdy.Framer()
    # This client sends its first streams together with the request.
    first = framer.syn_stream(1, {"streamType": "stdin"}) + framer.data_head(1, 5, fin=True) + b"hello"
    headers = UPGRADE + "Authorization: Bearer mine\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 0\r\n"
    with FakeRuntime(serve) as fake, passing_on(fake.url) as port, ask(port, headers, first) as sock:
        status, rest = answer(sock)
        assert status == "HTTP/1.1 101 Switching Protocols"
        frames = list(framer.feed(rest))
        while not (frames and isinstance(frames[-1], spdy.Data) and frames[-1].fin):
            frames += framer.feed(sock.recv(65536))
        assert isinstance(frames[-1], spdy.Data)
        assert bytes(frames[-1].data) == b"hello to you"
    lines = fake.heads[0].split("\r\n")
    assert lines[0] == "POST /exec/token?x=y HTTP/1.1"
    assert "X-Forwarded-For: 192.0.2.1, 127.0.0.1" in lines
    assert "Bearer" not in fake.heads[0], "the client's credentials are not the runtime's business"


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (
            b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nlate",
            ("HTTP/1.1 429 Too Many Requests", b"late"),
        ),
        (b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\ngone", ("HTTP/1.1 404 Not Found", b"gone")),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nno\r\n3\r\nway\r\n0\r\n\r\n",
            ("HTTP/1.1 403 Forbidden", b"noway"),
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
            ("HTTP/1.1 500 Internal Server Error", b"invalid upgrade response: status code 302\n"),
        ),
    ],
)
def test_a_refusal_is_passed_on_and_the_connection_stays(refusal: bytes, expected: tuple[str, bytes]) -> None:
    def serve(streams: FakeStreams) -> None:
        raise AssertionError("never upgraded")

    with FakeRuntime(serve, refusal=refusal) as fake, passing_on(fake.url) as port, ask(port, UPGRADE) as sock:
        assert answer(sock) == expected


def test_a_request_without_an_upgrade() -> None:
    with passing_on("http://127.0.0.1:1/") as port, ask(port, "Content-Length: 0\r\n") as sock:
        assert answer(sock) == ("HTTP/1.1 400 Bad Request", b"Upgrade request required\n")


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("http://127.0.0.1:1/x", b"error dialing backend: "),
        ("ftp://127.0.0.1/x", b"error dialing backend: unknown scheme or host"),
        ("/x", b"error dialing backend: unknown scheme or host"),
        ("http://[::1/x", b"error dialing backend: Invalid IPv6 URL"),
        ("http://127.0.0.1:1/x HTTP/1.1", b"error dialing backend: target or host cannot be sent"),
    ],
)
def test_a_runtime_that_is_not_there(location: str, text: bytes) -> None:
    with passing_on(location) as port, ask(port, UPGRADE) as sock:
        status, body = answer(sock)
    assert status == "HTTP/1.1 500 Internal Server Error"
    assert body.startswith(text)


def test_a_field_that_is_not_ascii_is_passed_on() -> None:
    refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"
    with (
        FakeRuntime(lambda _: None, refusal=refusal) as fake,
        passing_on(fake.url) as port,
        ask(port, f"{UPGRADE}User-Agent: Müller\r\n") as sock,
    ):
        assert answer(sock) == ("HTTP/1.1 404 Not Found", b"gone")
    assert "User-Agent: Müller\r\n" in fake.heads[0]


@pytest.mark.parametrize(
    "junk",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n\r\n",
        b"HTTP/1.1 101 Sw",
        b"HTTP/1.1 404 Not Found\r\nField: a" + b" " * 60_000 + b"\0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
        b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\ngone",
    ],
)
def test_a_runtime_that_speaks_no_http(junk: bytes) -> None:
    with FakeRuntime(lambda _: None, refusal=junk) as fake, passing_on(fake.url) as port, ask(port, UPGRADE) as sock:
        status, body = answer(sock)
    assert status == "HTTP/1.1 500 Internal Server Error"
    assert body.startswith(b"error sending request: ")


class _Backend:
    """Replace a relay and its backend, and record the written pieces."""

    def __init__(self) -> None:
        self.backend = self
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if data:
            self.written.append(data)

    write_once_drained = write

    def write_held(self) -> None:
        """Do nothing, because nothing waits."""


def test_pings_wait_until_the_runtime_has_no_more_to_say() -> None:
    held: list[bytes] = []
    relay: Any = _Backend()
    relay.write_once_drained = held.append
    ping, data = spdy.Framer().ping(1), spdy.Framer.data_head(1, 1) + b"a"
    _PingsLast(relay).from_client(data + ping)
    assert (held, relay.written) == ([ping], [data])


def test_a_ping_that_waited_never_comes_within_another_frame() -> None:
    """A delayed ping is never sent within another frame.

    Otherwise the runtime would read the ping as data, and data as the header of a frame.
    """
    (near, client), (far, backend) = socket.socketpair(), socket.socketpair()
    ping, frame = spdy.Framer().ping(1), spdy.Framer.data_head(1, 100) + b"a" * 100
    with near, client, far, backend:
        relay = Relay(PlainConn(client), PlainConn(backend))
        relay.client.on_data = _PingsLast(relay).from_client
        thread = golang.go(relay.run, name="relay")
        far.settimeout(TIMEOUT)
        near.sendall(ping + frame[:50])
        came = bytearray()
        while len(came) < len(ping) + 50:
            came += far.recv(1000)
        near.sendall(frame[50:])
        near.shutdown(socket.SHUT_WR)
        came += b"".join(iter(lambda: far.recv(1000), b""))
        far.close()
        thread.join()
    assert bytes(came) == ping + frame


@pytest.mark.parametrize("frame", [spdy.Framer.data_head(1, 0), spdy.Framer().ping(1)], ids=["empty", "ping"])
def test_many_small_frames_leave_the_turn_to_others(frame: bytes) -> None:
    """A client with many small frames leaves turns to other connections.

    The turn is returned before the frames found in it are written.
    """
    relay: Any = _Backend()
    sent = frame * (3 * PIECES_IN_TURN)
    _PingsLast(relay).from_client(sent)
    assert b"".join(relay.written) == sent
    assert max(map(len, relay.written)) <= PIECES_IN_TURN * len(frame)
