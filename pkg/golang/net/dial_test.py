"""Test connecting to names with several addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pkg import golang
from pkg.golang import net
from pkg.golang.net import dial
from pkg.golang.net.testing import silent, stream_address
from pkg.golang.testing import OnlyTurn, frames_kept_after

_WAIT = 30.0


@contextmanager
def listening(host: str) -> Iterator[net.Address]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        yield stream_address(listener)


@contextmanager
def refusing(host: str) -> Iterator[net.Address]:
    with socket.socket() as bound:
        bound.bind((host, 0))
        yield stream_address(bound)


def connected_to(addresses: list[net.Address], seconds: float = _WAIT) -> object:
    ctx, cancel = golang.with_timeout(golang.background(), seconds)
    try:
        with net.dial_parallel(ctx, addresses, lambda sock: None) as sock:
            return sock.getpeername()
    finally:
        cancel()


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
    # Otherwise the first address would use all the time, and the second would fail because none is left.
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


def test_cancel_ends_a_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "FALLBACK_DELAY", 0.0)
    with silent("127.0.0.2") as dead, silent("::1") as other:
        ctx, cancel = golang.with_cancel(golang.background())
        waiting = golang.Channel[None](1)
        with told_of_waits(monkeypatch, waiting):
            thread = golang.go(lambda: (waiting.recv(_WAIT), cancel()), name="cancel")
            with pytest.raises(ConnectionAbortedError):
                net.dial_parallel(ctx, [dead, other], lambda sock: None)
        thread.join(_WAIT)


def test_cancel_before_a_socket_begins_to_connect_ends_the_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent("127.0.0.2") as dead:
        ctx, cancel = golang.with_cancel(golang.background())
        with pytest.raises(ConnectionAbortedError):
            net.dial_parallel(ctx, [dead], lambda sock: cancel())


@contextmanager
def told_of_waits(monkeypatch: pytest.MonkeyPatch, waiting: golang.Channel[None]) -> Iterator[None]:
    """Signal on the channel when a dial is about to wait for its sockets."""
    wait = dial._wait

    def tell(dials: Sequence[dial._DialSerial], until: float) -> None:
        waiting.try_send(None)
        wait(dials, until)

    with monkeypatch.context() as patch:
        patch.setattr(dial, "_wait", tell)
        yield


def test_refusal_keeps_nothing_of_the_caller() -> None:
    with refusing("127.0.0.1") as address:
        assert frames_kept_after(lambda: connected_to([address])) == []


def test_a_dial_that_waits_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    only, free = OnlyTurn(), list[bool]()
    wait = dial._wait

    def look(dials: Sequence[dial._DialSerial], until: float) -> None:
        free.append(only.is_free())
        wait(dials, until)

    monkeypatch.setattr(dial, "_wait", look)
    with listening("127.0.0.1") as address, only.turn:
        net.dial_parallel(only.ctx, [address], lambda sock: None).close()
    assert free == [True]
