"""Test commands over WebSockets with a runtime that speaks SPDY."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from framework.waiting import wait_for
from wsproto import events
from wsproto.connection import Connection, ConnectionType

from pkg import golang
from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.proxy.relay import MAX_WAITING_BYTES
from pkg.apimachinery.util.proxy.testing import TIMEOUT, FakeRuntime, FakeStreams, WebSocketClient
from pkg.apimachinery.util.proxy.upgradeaware import Backend
from pkg.apiserver.util.proxy import Options, StreamTranslatorHandler
from pkg.apiserver.util.proxy.streamtranslator import _Session
from pkg.apiserver.util.proxy.websocket import WebSocket
from pkg.golang import http
from pkg.golang.http.conn import PlainConn
from pkg.util.testing import reset

V5 = "v5.channel.k8s.io"
SUCCESS = {"metadata": {}, "status": "Success"}


@contextmanager
def translator(location: str, options: Options) -> Iterator[int]:
    """Serve commands, and yield the port."""
    handler = StreamTranslatorHandler(location, options)
    server = http.Server(handler.serve_http, name="translator")
    server.listen("127.0.0.1", 0)
    thread = golang.go(server.serve, name="translator")
    try:
        yield server.port
    finally:
        server.close()
        thread.join()


@contextmanager
def command(
    serve: Callable[[FakeStreams], None], options: Options, **runtime: Any
) -> Iterator[tuple[WebSocketClient, FakeRuntime]]:
    """Run `serve` as a command, and yield its client."""
    with ExitStack() as stack:
        fake = stack.enter_context(FakeRuntime(serve, **runtime))
        port = stack.enter_context(translator(fake.url, options))
        yield stack.enter_context(WebSocketClient(port, "/exec", V5)), fake


def status_of(message: bytes) -> dict[str, Any]:
    assert message[0] == 3, message
    decoded: dict[str, Any] = json.loads(message[1:])
    return decoded


def session_of(client: socket.socket, backend: socket.socket, options: Options) -> _Session:
    headers = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    fields = http.Headers([("Host", "n"), ("Connection", "Upgrade"), ("Upgrade", "websocket"), *headers.items()])
    body = http.Body(lambda: b"", 0)
    ctx = golang.background()
    request = http.Request("GET", "/", "/", fields, body, None, [], False, ctx)
    return _Session(WebSocket(request), PlainConn(client), Backend(PlainConn(backend), 101), options)


def test_runtime_that_pings_and_reads_nothing_is_not_read_from() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    session = session_of(pairs[0][0], pairs[1][0], Options(stdout=True))
    session.relay.backend.conn.setblocking(False)
    ping = spdy.Framer().ping(2)
    while session.relay.backend.waiting < MAX_WAITING_BYTES:
        session._from_backend(ping * 1000)
    assert not session.relay.backend.events(session.relay.client) & select.POLLIN
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("polite", [True, False])
def test_what_a_client_that_goes_has_said_arrives_although_the_runtime_is_slow(polite: bool) -> None:
    """The last data of a client that disconnects reaches a slow runtime, followed by the end of stdin."""
    (near, client), (far, backend) = socket.socketpair(), socket.socketpair()
    with near, client, far, backend:
        far.settimeout(TIMEOUT)
        session = session_of(client, backend, Options(stdin=True))

        def run() -> None:
            session.relay.run()
            session.end_input()

        thread = golang.go(run, name="session")
        ws = Connection(ConnectionType.CLIENT)
        sent = 0
        while not session.relay.backend.waiting:
            near.sendall(ws.send(events.BytesMessage(data=b"\x00" + bytes(1 << 10))))
            sent += 1 << 10
        if polite:
            near.sendall(ws.send(events.CloseConnection(code=1000)))
        near.close()
        wait_for("the session is finished", lambda: session._finished)
        streams = FakeStreams(far, streams={"stdin": 1})
        assert len(streams.read("stdin")) == sent
        far.close()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_streams_both_ways_and_success() -> None:
    def serve(streams: FakeStreams) -> None:
        assert streams.accept(4) == ["stdin", "error", "stdout", "stderr"]
        got = streams.read("stdin")
        streams.send("stdout", got.upper(), fin=True)
        streams.send("stderr", b"oops", fin=True)
        streams.send("error", json.dumps({"status": "Success"}).encode(), fin=True)
        assert streams.next() is None

    with command(serve, Options(stdin=True, stdout=True, stderr=True)) as (client, fake):
        assert client.subprotocol == V5
        client.message(b"\x00hello ")
        client.message(b"\x00world")
        client.message(b"\xff\x00")
        messages = list(client.messages())
    assert messages[:3] == [b"\x01", b"\x01HELLO WORLD", b"\x02oops"]
    assert status_of(messages[3]) == SUCCESS
    head = fake.heads[0]
    assert head.startswith("POST /exec/token?x=y HTTP/1.1\r\n")
    assert "X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in head


def test_much_input_arrives_whole() -> None:
    data = bytes(range(256)) * 20_000
    received: list[bytes] = []

    def serve(streams: FakeStreams) -> None:
        streams.accept(2)
        received.append(streams.read("stdin"))
        streams.send("error", b"", fin=True)

    with command(serve, Options(stdin=True)) as (client, _):
        for at in range(0, len(data), 100_000):
            client.message(b"\x00" + data[at : at + 100_000])
        # A client may send one message in several frames.
        client.send(events.BytesMessage(data=b"\x00the", message_finished=False))
        client.send(events.BytesMessage(data=b" end", message_finished=True))
        client.message(b"\xff\x00")
        messages = list(client.messages())
    assert received == [data + b"the end"]
    assert messages[0] == b"\x03"
    assert status_of(messages[1]) == SUCCESS


def test_terminal_sizes() -> None:
    sizes: list[bytes] = []

    def serve(streams: FakeStreams) -> None:
        assert streams.accept(4) == ["stdin", "resize", "error", "stdout"]
        for _ in range(2):
            frame = streams.next()
            assert frame is not None
            sizes.append(bytes(frame.data))  # type: ignore[union-attr]
        for name in ("stdout", "error"):
            streams.send(name, b"", fin=True)

    # A terminal has no separate stderr.
    with command(serve, Options(stdin=True, stdout=True, stderr=True, tty=True)) as (client, _):
        client.message(b'\x04{"Width":80,"Height":24}')
        client.message(b"\x04junk")
        client.message(b'\x04{"no text: \xd7":1}')
        client.message(b'\x04{"Width":132,"Height":43}')
        list(client.messages())
    assert sizes == [b'{"Width":80,"Height":24}\n', b'{"Width":132,"Height":43}\n']


def exit_with(code: str) -> dict[str, Any]:
    return {
        "status": "Failure",
        "message": "command terminated with non-zero exit code: exit status 3",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code}]},
    }


@pytest.mark.parametrize(
    ("said", "protocol", "expected"),
    [
        (json.dumps(exit_with("3")), "v4.channel.k8s.io", ("NonZeroExitCode", "3")),
        (json.dumps({"status": "Failure", "message": "no shell"}), "v4.channel.k8s.io", ("InternalError", "no shell")),
        (
            json.dumps(exit_with("3") | {"details": None}),
            "v5.channel.k8s.io",
            ("InternalError", "no valid ExitCode cause"),
        ),
        (json.dumps(exit_with("\N{SUPERSCRIPT TWO}")), "v5.channel.k8s.io", ("InternalError", "invalid syntax")),
        pytest.param(
            json.dumps(exit_with("9" * 5000)), "v5.channel.k8s.io", ("InternalError", "value out of range"), id="long"
        ),
        ("junk", "v4.channel.k8s.io", ("InternalError", "error stream protocol error")),
        ("it broke", "v2.channel.k8s.io", ("InternalError", "error executing remote command: it broke")),
        ("", "v4.channel.k8s.io", ("", "")),
    ],
)
def test_how_the_command_ended(said: str, protocol: str, expected: tuple[str, str]) -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(2)
        # The runtime may end its streams in any order.
        streams.send("error", said.encode(), fin=True)
        streams.send("stdout", b"last", fin=True)

    with command(serve, Options(stdout=True), protocol=protocol) as (client, _):
        *_, last, status = client.messages()
    assert last == b"\x01last"
    told = status_of(status)
    assert told.get("reason", "") == expected[0]
    assert expected[1] in json.dumps(told)


def test_a_runtime_that_breaks_off_is_no_success() -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(2)
        streams.send("stdout", b"half of")

    with command(serve, Options(stdout=True)) as (client, _):
        *_, output, status = client.messages()
    assert output == b"\x01half of"
    assert "before the command ended" in status_of(status)["message"]


def test_a_runtime_that_refuses() -> None:
    def serve(streams: FakeStreams) -> None:
        raise AssertionError("never upgraded")

    refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\nunknown token"
    with command(serve, Options(stdout=True), refusal=refusal) as (client, _):
        *_, status = client.messages()
    assert status_of(status)["message"] == "Internal error occurred: unable to upgrade connection: unknown token"


def test_a_runtime_that_is_not_there() -> None:
    with (
        translator("http://127.0.0.1:1/exec/token", Options(stdout=True)) as port,
        WebSocketClient(port, "/", V5) as ws,
    ):
        *_, status = ws.messages()
    assert "error dialing backend" in status_of(status)["message"]


def test_a_runtime_that_speaks_something_else() -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(2)
        streams.sock.sendall(b"\x80\x09not spdy at all")
        assert streams.next() is None

    with command(serve, Options(stdout=True)) as (client, _):
        *_, status = client.messages()
    assert "SPDY frame" in status_of(status)["message"]


@pytest.mark.parametrize("polite", [True, False])
def test_a_client_that_goes_ends_the_runtimes_connection(polite: bool) -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(2)
        streams.send("stdout", b"working")
        assert streams.next() is None

    with command(serve, Options(stdout=True)) as (client, _):
        messages = client.messages()
        assert [next(messages), next(messages)] == [b"\x01", b"\x01working"]
        if polite:
            client.send(events.CloseConnection(code=1000))
            client.wait_for(events.CloseConnection)
        client.sock.close()


@pytest.mark.parametrize("how", ["close", "cut", "reset"])
def test_a_client_that_goes_ends_the_commands_stdin_first(how: str) -> None:
    heard: list[bytes] = []

    def serve(streams: FakeStreams) -> None:
        streams.accept(3)
        heard.append(streams.read("stdin"))
        # The session waits for the end of the command, and forwards its remaining output.
        streams.send("stdout", b"bye", fin=True)
        streams.send("error", b"", fin=True)

    with command(serve, Options(stdin=True, stdout=True)) as (client, _):
        client.message(b"\x00last words")
        if how == "close":
            client.send(events.CloseConnection(code=1000))
            client.wait_for(events.CloseConnection)
        if how == "reset":
            assert next(client.messages()) == b"\x01"
            reset(client.sock)
        client.sock.close()
    assert heard == [b"last words"]


def test_pings_are_answered_on_both_sides() -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(2)
        streams.sock.sendall(streams.framer.ping(2))
        assert str(streams.next()) == "Ping(ping_id=2)"
        streams.send("stdout", b"go")
        assert streams.next() is None

    with command(serve, Options(stdout=True)) as (client, _):
        messages = client.messages()
        assert [next(messages), next(messages)] == [b"\x01", b"\x01go"]
        client.send(events.Ping(payload=b"still there?"))
        assert client.wait_for(events.Pong) == events.Pong(payload=b"still there?")


@pytest.mark.parametrize("message", [b"\xff", b"\xff\x00\x00", b"\xff\x09"])
def test_a_close_signal_that_names_no_stream_ends_it(message: bytes) -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(3)
        assert streams.read("stdin") == b""

    with command(serve, Options(stdin=True, stdout=True)) as (client, _):
        client.message(message)
        assert [each[:1] for each in client.messages()] == [b"\x01"]


def test_a_ping_right_behind_what_ends_it_changes_nothing() -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(3)
        assert streams.read("stdin") == b""

    with command(serve, Options(stdin=True, stdout=True)) as (client, _):
        signal_and_ping = b"\x82\x81" + bytes(4) + b"\xff" + b"\x89\x80" + bytes(4)
        client.sock.sendall(signal_and_ping)
        assert [each[:1] for each in client.messages()] == [b"\x01"]


@pytest.mark.parametrize("junk", [b"\xff" * 50, b"\x82\x05hello"])
def test_what_is_no_websocket_frame_ends_it(junk: bytes) -> None:
    def serve(streams: FakeStreams) -> None:
        streams.accept(3)
        assert streams.read("stdin") == b""

    with command(serve, Options(stdin=True, stdout=True)) as (client, _):
        client.sock.sendall(junk)
        closed = client.wait_for(events.CloseConnection)
        assert isinstance(closed, events.CloseConnection)
        assert closed.code == 1002


@pytest.mark.parametrize(
    ("line", "more", "status"),
    [
        ("GET / HTTP/1.1", "", 400),
        ("POST / HTTP/1.1", "", 405),
        ("GET / HTTP/1.1", "Sec-WebSocket-Version: 8\r\n", 400),
    ],
)
def test_a_request_that_opens_no_websocket(line: str, more: str, status: int) -> None:
    head = f"{line}\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{more}\r\n"
    with (
        translator("http://127.0.0.1:1/", Options(stdout=True)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as sock,
    ):
        sock.sendall(head.encode())
        assert sock.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())
