"""Tests of connecting to names that have several addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

import pytest

from pkg import golang
from pkg.client_go import rest
from pkg.client_go.rest import testing
from pkg.client_go.transport import connection, dial

_WAIT = 30.0


def stream_address(sock: socket.socket) -> dial.Address:
    return sock.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", sock.getsockname()


@contextmanager
def silent(host: str) -> Iterator[dial.Address]:
    """An address that does not answer: its queue of connections that nobody accepts is full."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, 0), family=family, backlog=0))
        for _ in range(2):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield stream_address(listener)


@contextmanager
def listening(host: str) -> Iterator[dial.Address]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        yield stream_address(listener)


@contextmanager
def refusing(host: str) -> Iterator[dial.Address]:
    with socket.socket() as bound:
        bound.bind((host, 0))
        yield stream_address(bound)


def connected_to(addresses: list[dial.Address], seconds: float = _WAIT) -> object:
    with dial.dial_parallel(addresses, monotonic() + seconds, lambda sock: None) as sock:
        return sock.getpeername()


def test_the_other_family_is_tried_after_a_while() -> None:
    with silent("::1") as dead, listening("127.0.0.1") as alive:
        assert connected_to([dead, alive]) == alive[4]


def test_the_other_family_is_tried_at_once_when_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "FALLBACK_DELAY", _WAIT)
    with refusing("127.0.0.2") as dead, listening("::1") as alive:
        assert connected_to([dead, alive]) == alive[4]


def test_each_address_of_a_family_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "MIN_ADDRESS_TIMEOUT", 0.0)
    with silent("127.0.0.2") as dead, listening("127.0.0.1") as alive:
        assert connected_to([dead, alive], 0.5) == alive[4]


def test_the_error_of_the_first_address_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Or the first address would take all the time, and the second fail for want of it.
    monkeypatch.setattr(dial, "MIN_ADDRESS_TIMEOUT", 0.0)
    with refusing("127.0.0.2") as refused, silent("::1") as dead, pytest.raises(ConnectionRefusedError):
        connected_to([refused, dead], 0.05)
    with silent("127.0.0.2") as dead, refusing("127.0.0.1") as refused, pytest.raises(TimeoutError):
        connected_to([dead, refused], 0.5)


@pytest.mark.parametrize(
    ("remaining", "addresses", "share"), [(12.0, 1, 12.0), (12.0, 3, 4.0), (6.0, 4, 2.0), (1.0, 4, 1.0)]
)
def test_partial_deadline(remaining: float, addresses: int, share: float) -> None:
    assert dial.partial_deadline(5.0, 5.0 + remaining, addresses) == 5.0 + share


def test_no_time_is_left() -> None:
    with pytest.raises(TimeoutError, match="i/o timeout"):
        dial.partial_deadline(5.0, 5.0, 1)


def test_a_request_reaches_the_second_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "MIN_ADDRESS_TIMEOUT", 0.0)
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.5)
    with testing.serve(lambda request: request.answer()) as server, silent("127.0.0.2") as dead:
        port = int(server.url.rpartition(":")[2])
        alive = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [dead, alive])
        one = rest.RESTClient(rest.Config(host=f"http://several.example:{port}"))
        assert one.request(golang.background(), "GET", "/") == b"{}"
        one.close_idle_connections()


def test_cancel_ends_a_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent("127.0.0.2") as dead, silent("::1") as other:
        connecting = golang.Channel[None](1)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [dead, other])
        monkeypatch.setattr(dial, "FALLBACK_DELAY", 0.0)
        one = rest.RESTClient(rest.Config(host="http://several.example"))
        ctx, cancel = golang.with_cancel(golang.background())
        poll = dial._wait

        def wait(dials: list[dial._DialSerial], until: float) -> None:
            connecting.try_send(None)
            poll(dials, until)

        monkeypatch.setattr(dial, "_wait", wait)
        errors: list[BaseException] = []

        def request() -> None:
            try:
                one.request(ctx, "GET", "/")
            except golang.Canceled as err:
                errors.append(err)

        thread = golang.go(request, name="dialing")
        connecting.recv(_WAIT)
        cancel()
        thread.join(_WAIT)
        assert not thread.is_alive()
        assert [type(err) for err in errors] == [golang.Canceled]
