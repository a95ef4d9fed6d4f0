"""Tests of noticing that clients have gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pkg.golang.http import HangUps

TIMEOUT = 10.0


@pytest.fixture
def hang_ups() -> Iterator[HangUps]:
    made = HangUps("test-hang-ups")
    yield made
    made.close()


def test_one_is_told_and_the_others_are_not(hang_ups: HangUps) -> None:
    told = [threading.Event(), threading.Event()]
    pairs = [socket.socketpair(), socket.socketpair()]
    for event, (ours, _) in zip(told, pairs, strict=True):
        hang_ups.add(ours.fileno(), event.set)
    pairs[0][1].send(b"still here")
    pairs[1][1].close()
    assert told[1].wait(TIMEOUT)
    assert not told[0].is_set()
    for ours, theirs in pairs:
        hang_ups.remove(ours.fileno())
        ours.close()
        theirs.close()


def test_gone_before_anybody_asked(hang_ups: HangUps) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    told = threading.Event()
    hang_ups.add(ours.fileno(), told.set)
    assert told.wait(TIMEOUT)
    hang_ups.remove(ours.fileno())
    ours.close()


def test_removed_is_not_told(hang_ups: HangUps) -> None:
    calls: list[str] = []
    first, second = socket.socketpair(), socket.socketpair()
    told = threading.Event()
    hang_ups.add(first[0].fileno(), lambda: calls.append("removed"))
    hang_ups.add(second[0].fileno(), told.set)
    hang_ups.remove(first[0].fileno())
    hang_ups.remove(first[0].fileno())
    first[1].close()
    second[1].close()
    assert told.wait(TIMEOUT)
    assert calls == []
    hang_ups.remove(second[0].fileno())
    first[0].close()
    second[0].close()
