"""Test noticing clients that disconnect."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg.golang.http import HangUps

TIMEOUT = 30.0


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


def test_what_cannot_be_watched_leaves_nothing_behind(hang_ups: HangUps, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        # epoll rejects regular files, which simulates a lack of memory for another descriptor.
        with pytest.raises(PermissionError):
            hang_ups.add(file.fileno(), lambda: None)
        hang_ups.remove(file.fileno())


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


class SlowEpoll:
    """Delay the first events until the test releases them."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.unregister = self._epoll.unregister
        self.close = self._epoll.close
        self.polled = threading.Event()
        self.go_on = threading.Event()

    def poll(self) -> list[tuple[int, int]]:
        events = self._epoll.poll()
        self.polled.set()
        assert self.go_on.wait(TIMEOUT)
        return events


def test_the_next_one_with_the_same_descriptor_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is not cancelled when its connection got the descriptor of a disconnected client."""
    slow = SlowEpoll()
    with monkeypatch.context() as making:
        making.setattr(select, "epoll", lambda: slow)
        hang_ups = HangUps("test-hang-ups")
    (first, first_client), (second, second_client), (third, third_client) = (socket.socketpair() for _ in range(3))
    calls: list[str] = []
    told = [threading.Event(), threading.Event()]
    with first, second_client, third:
        hang_ups.add(first.fileno(), lambda: calls.append("first"))
        first_client.close()
        assert slow.polled.wait(TIMEOUT)
        hang_ups.remove(first.fileno())
        os.dup2(second.fileno(), first.fileno())
        second.close()
        hang_ups.add(first.fileno(), told[0].set)
        hang_ups.add(third.fileno(), told[1].set)
        third_client.close()
        slow.go_on.set()
        assert told[1].wait(TIMEOUT)
        assert calls == [] and not told[0].is_set()
        second_client.close()
        assert told[0].wait(TIMEOUT), "the one who took the descriptor over is watched all the same"
        hang_ups.remove(first.fileno())
        hang_ups.remove(third.fileno())
        hang_ups.close()
