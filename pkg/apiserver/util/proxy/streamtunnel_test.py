"""Test SPDY inside of WebSockets."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from wsproto import events

from pkg import golang
from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.proxy.relay import Relay
from pkg.apimachinery.util.proxy.testing import TIMEOUT, FakeRuntime, FakeStreams, WebSocketClient
from pkg.apiserver.util.proxy import TunnelingHandler, streamtunnel
from pkg.golang import http

TUNNEL = "SPDY/3.1+portforward.k8s.io"


@contextmanager
def tunnel(location: str) -> Iterator[int]:
    server = http.Server(TunnelingHandler(location).serve_http, name="tunnel")
    server.listen("127.0.0.1", 0)
    thread = golang.go(server.serve, name="tunnel")
    try:
        yield server.port
    finally:
        server.close()
        thread.join()


def echo(streams: FakeStreams) -> None:
    assert streams.accept(2, "port") == ["80", "80"]
    streams.send("80", streams.read("80"), fin=True)
    assert streams.next() is None


def test_what_is_inside_arrives_as_it_is() -> None:
    data = bytes(range(256)) * 3000
    framer = spdy.Framer()
    with (
        FakeRuntime(echo, "portforward.k8s.io") as fake,
        tunnel(fake.url) as port,
        WebSocketClient(port, "/portForward", "other", TUNNEL) as client,
    ):
        assert client.subprotocol == TUNNEL
        for stream in (1, 3):
            client.message(framer.syn_stream(stream, {"port": "80"}))
        client.message(framer.data_head(3, len(data), fin=True))
        for at in range(0, len(data), 50_000):
            client.message(data[at : at + 50_000])
        got, replies = bytearray(), 0
        for frame in (frame for message in client.messages() for frame in framer.feed(message)):
            replies += isinstance(frame, spdy.SynReply)
            if isinstance(frame, spdy.Data):
                got += frame.data
                if frame.fin:
                    break
        assert bytes(got) == data
        assert replies == 2
        client.send(events.CloseConnection(code=1000))
        client.wait_for(events.CloseConnection)
    head = fake.heads[0]
    assert head.startswith("POST /exec/token?x=y HTTP/1.1\r\n")
    assert "Upgrade: SPDY/3.1\r\n" in head
    assert "X-Stream-Protocol-Version: portforward.k8s.io\r\n" in head
    assert "sec-websocket" not in head.lower()


def test_the_end_of_the_runtimes_connection_closes_the_websocket() -> None:
    runtime = FakeRuntime(lambda _: None, "portforward.k8s.io")
    with runtime as fake, tunnel(fake.url) as port, WebSocketClient(port, "/", TUNNEL) as client:
        assert list(client.messages()) == []


def test_a_runtime_that_goes_on_after_the_client_has_closed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that keeps sending after the client has closed the connection is abandoned.

    Otherwise a thread and two connections would stay as long as the runtime sends.
    """
    left = threading.Event()

    def endless(streams: FakeStreams) -> None:
        assert isinstance(streams.next(), spdy.Ping) and streams.next() is None
        with contextlib.suppress(ConnectionError):
            while True:
                streams.sock.sendall(bytes(4 << 10))
        left.set()

    monkeypatch.setattr(streamtunnel, "Relay", functools.partial(Relay, linger=0.2))
    with FakeRuntime(endless, "portforward.k8s.io") as fake, tunnel(fake.url) as port:
        with WebSocketClient(port, "/portForward", TUNNEL) as client:
            client.message(spdy.Framer().ping(1))
            client.send(events.CloseConnection(code=1000))
            client.wait_for(events.CloseConnection)
        assert left.wait(TIMEOUT)


@pytest.mark.parametrize(
    ("refusal", "status", "text"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnone", 403, b"none"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine", 500, b"invalid upgrade response: status code 200\n"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n",
            500,
            b"unable to upgrade: missing upgrade headers in response\n",
        ),
    ],
)
def test_a_runtime_that_refuses(refusal: bytes, status: int, text: bytes) -> None:
    runtime = FakeRuntime(lambda _: None, refusal=refusal)
    with runtime as fake, tunnel(fake.url) as port, WebSocketClient(port, "/", TUNNEL) as client:
        assert (client.refused, client.refusal) == (status, text)


def test_a_client_without_a_tunnels_protocol() -> None:
    with tunnel("http://127.0.0.1:1/") as port, WebSocketClient(port, "/", "v4.channel.k8s.io") as client:
        assert (client.refused, client.refusal) == (
            400,
            b"unable to upgrade: no tunneling spdy protocols provided\n",
        )
