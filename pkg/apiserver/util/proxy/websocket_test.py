"""Test which requests open WebSockets, and the limit on WebSockets that are served at the same time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from framework.waiting import wait_until_equal

from pkg import golang
from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.proxy.relay import PIECES_IN_TURN, TURNS
from pkg.apimachinery.util.proxy.upgradeaware import Backend
from pkg.apiserver.util.proxy import Options
from pkg.apiserver.util.proxy.streamtranslator import _Session
from pkg.apiserver.util.proxy.streamtunnel import _Tunnel
from pkg.apiserver.util.proxy.websocket import WebSocket
from pkg.golang import http
from pkg.golang.turn import MAX_TURNS

_TIMEOUT = 30.0

_Write = Callable[[bytes], None]
_Feed = Callable[[bytes], None]


def _request(*hosts: str) -> http.Request:
    headers = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    named = [("Host", host) for host in hosts]
    fields = http.Headers([*named, ("Connection", "Upgrade"), ("Upgrade", "websocket"), *headers.items()])
    return http.Request("GET", "/", "/", fields, http.Body(lambda: b"", 0), None, [], False, golang.background())


def _opened() -> WebSocket:
    opened = WebSocket(_request("n"))
    opened.accept(None)
    return opened


def _tunnel(write: _Write) -> _Feed:
    relay: Any = SimpleNamespace(client=SimpleNamespace(), backend=SimpleNamespace(write=write))
    return _Tunnel(relay, _opened()).from_client


def _command(write: _Write) -> _Feed:
    conn: Any = SimpleNamespace(fileno=lambda: 0)
    session = _Session(_opened(), conn, Backend(conn, 101), Options(stdin=True))
    relay: Any = SimpleNamespace(backend=SimpleNamespace(write=write))
    session.relay = relay
    return session._from_client


def _output(write: _Write) -> _Feed:
    conn: Any = SimpleNamespace(fileno=lambda: 0)
    session = _Session(_opened(), conn, Backend(conn, 101), Options(stdout=True))
    relay: Any = SimpleNamespace(client=SimpleNamespace(write=write))
    session.relay = relay
    return session._from_backend


def _message(text: bytes) -> bytes:
    """Return a message to stdin as a client sends it, masked with zeros."""
    payload = b"\0" + text
    return struct.pack(">BBI", 0x82, 0x80 | len(payload), 0) + payload


def _frame(text: bytes) -> bytes:
    """Return a frame on stdout as a runtime sends it; stdout is the second stream of a command without stdin."""
    return spdy.Framer.data_head(3, len(text)) + text


@pytest.mark.parametrize(("of", "sent"), [(_tunnel, _message), (_command, _message), (_output, _frame)])
def test_many_small_messages_leave_the_turn_to_others(
    of: Callable[[_Write], _Feed], sent: Callable[[bytes], bytes]
) -> None:
    order: list[bytes] = []
    threads: list[golang.Thread] = []
    busy, over = golang.Channel[None](), golang.Channel[None]()

    def start(write: _Write) -> None:
        threads.append(golang.go(of(write), sent(b"b"), name="other"))

    def keep_turn(data: bytes) -> None:
        busy.send(None)
        over.recv(_TIMEOUT)

    def note(data: bytes) -> None:
        if not order:
            for _ in range(MAX_TURNS - 1):
                start(keep_turn)
                assert busy.recv(_TIMEOUT)[1]
            start(lambda data: order.append(data[-1:]))
            wait_until_equal("threads in line", lambda: len(TURNS._waiting), 1)
        order.append(data[-1:])

    try:
        of(note)(sent(b"a") * (3 * PIECES_IN_TURN))
        assert order.count(b"a") == 3 * PIECES_IN_TURN
        assert order.index(b"b") < PIECES_IN_TURN
    finally:
        over.close()
        for thread in threads:
            thread.join(_TIMEOUT)


@pytest.mark.parametrize("hosts", [(), ("a", "b")])
def test_request_of_old_http_without_its_host_is_the_clients_mistake(hosts: tuple[str, ...]) -> None:
    with pytest.raises(http.HTTPError) as raised:
        WebSocket(_request(*hosts))
    assert raised.value.code == 400
