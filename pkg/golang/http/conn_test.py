"""Test connections alone; server_test.py tests them in servers."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from OpenSSL import SSL

from pkg import golang
from pkg.golang.http import conn as httpconn
from pkg.golang.http import tlsconn

SELF_SIGNED = Path(__file__).parents[3] / "test/data/tls/self-signed.pem"


class _Torrent(httpconn.PlainConn):
    """Represent a connection whose peer sends faster than this side reads."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.received = 0

    def recv(self, n: int) -> bytes:
        self.received += 1
        assert self.received < 10
        return b"x" * n


def test_who_sends_without_a_pause_is_not_read_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each reading of the clock advances it by one second.
    ticks = itertools.count()
    monkeypatch.setattr(httpconn, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        conn = _Torrent(ours)
        turns: list[int] = []

        @contextlib.contextmanager
        def let_others() -> Iterator[None]:
            turns.append(conn.received)
            yield

        httpconn.linger(conn, 3.0, let_others)
        assert conn.received == 2
        assert turns == [1, 2]
        assert theirs.recv(1) == b""


class _Full:
    """Represent an OpenSSL connection that cannot send now."""

    def __init__(self) -> None:
        self.tries = 0

    def shutdown(self) -> bool:
        self.tries += 1
        assert self.tries < 10
        raise SSL.WantWriteError


def test_the_end_of_tls_is_not_waited_for_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        conn = tlsconn.TLSConn(tlsconn.client_context(), ours)
        monkeypatch.setattr(conn, "_tls", _Full())
        conn.setblocking(False)
        # With this deadline, code that waits nevertheless does not wait forever.
        conn.set_deadline(0.0)
        with pytest.raises(httpconn.WouldWait) as raised:
            conn.shutdown_write()
        assert raised.value.event == select.POLLOUT


def _shake_hands(sock: socket.socket, tickets: int) -> None:
    """Do the server's part of the handshake, and send the given number of session tickets after it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    context.num_tickets = tickets
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, to_send, server_side=True)
    ended = False
    while not ended:
        try:
            tls.do_handshake()
            ended = True
        except ssl.SSLWantReadError:
            pass
        sock.sendall(to_send.read())
        if not ended:
            received.write(sock.recv(65536))


def test_what_holds_no_data_is_not_read_beyond_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        conn = tlsconn.TLSConn(SSL.Context(SSL.TLS_CLIENT_METHOD), ours, "server")
        server = golang.go(_shake_hands, theirs, 100, name="server")
        conn.handshake()
        server.join()
        conn.set_deadline(time.monotonic() - 1)
        with pytest.raises(TimeoutError):
            conn.recv(1)
        assert len(ours.recv(65536)) > 10_000, "all tickets but the first"


def test_who_is_left_is_not_waited_for_to_take_the_end_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        conn = tlsconn.TLSConn(tlsconn.client_context(), ours)
        full = _Full()
        monkeypatch.setattr(conn, "_tls", full)
        httpconn.linger(conn, 0.0)
        assert full.tries == 1
