"""Test the reader of the kernel log with a pipe, in which each write is one entry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kubelet.cadvisor.kmsg import KmsgParser
from pkg import golang


class Log:
    """Represent the kernel's end of the log."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
        self.path = f"/proc/self/fd/{self._reader}"

    def write(self, *entries: str) -> None:
        for entry in entries:
            os.write(self._writer, entry.encode())

    def end(self) -> None:
        """End the log."""
        os.close(self._writer)
        self._writer = -1

    def close(self) -> None:
        os.close(self._reader)
        if self._writer >= 0:
            self.end()


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


def test_entries(log: Log) -> None:
    log.write("6,1,0,-;first\n", "4,2,2000000,c,caller=T1;second;half\n SUBSYSTEM=net\n", "6,3,3000000,-;\n")
    log.end()
    found = list(KmsgParser(log.path).parse(golang.background()))
    assert [message.text for message in found] == ["first\n", "second;half\n SUBSYSTEM=net\n", "\n"]
    assert found[1].timestamp - found[0].timestamp == timedelta(seconds=2)
    assert abs((found[0].timestamp - datetime.now(UTC)).total_seconds()) > 1, "the machine was started some time ago"


@pytest.mark.parametrize("entry", ["no semicolon", "6,1;text", "6,1,x,-;text", ";"])
def test_what_is_no_entry_is_passed_over(log: Log, entry: str) -> None:
    log.write(entry, "6,1,0,-;good")
    log.end()
    assert [message.text for message in KmsgParser(log.path).parse(golang.background())] == ["good"]


def test_ends_when_it_is_told_to(log: Log) -> None:
    """The reader ends with its context even if no entry arrives."""
    ctx, cancel = golang.with_cancel(golang.background())
    seen: golang.Channel[str] = golang.Channel()

    def read() -> None:
        for message in KmsgParser(log.path).parse(ctx):
            seen.send(message.text)

    thread = golang.go(read, name="kmsg")
    log.write("6,1,0,-;one")
    assert seen.recv(30) == ("one", True)
    log.write("6,2,0,-;two")
    assert seen.recv(30) == ("two", True)
    cancel()
    thread.join(30)
    assert not thread.is_alive()


def test_is_done_before_it_begins(log: Log) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    log.write("6,1,0,-;one")
    assert list(KmsgParser(log.path).parse(ctx)) == []


def test_no_log() -> None:
    with pytest.raises(FileNotFoundError):
        KmsgParser("/nonexistent/kmsg")
