"""Tests of a watch over a stream."""

from __future__ import annotations

from pkg import golang
from pkg.apimachinery import watch
from pkg.apimachinery.watch.testing import FakeWatcher
from pkg.golang.testing import closes


class FakeDecoder:
    """Its events, then an exception if one is given, then blocks until closed if it shall."""

    def __init__(self, *events: watch.Event[str], err: Exception | None = None, block: bool = False) -> None:
        self._events = list(events)
        self._err = err
        self._block = block
        self.closed: golang.Channel[None] = golang.Channel()

    def decode(self) -> watch.Event[str] | None:
        if self._events:
            return self._events.pop(0)
        if self._err is not None:
            raise self._err
        if self._block:
            self.closed.recv()
        return None

    def close(self) -> None:
        self.closed.close()


class FakeReporter:
    def as_object(self, err: Exception) -> str:
        return f"reported: {err}"


def events_of(decoder: FakeDecoder) -> list[watch.Event[str]]:
    return list(watch.StreamWatcher(decoder, FakeReporter()).result_chan())


def test_events_until_the_end() -> None:
    event = watch.Event(watch.ADDED, "a")
    decoder = FakeDecoder(event, event)
    assert events_of(decoder) == [event, event]
    assert closes(decoder.closed)


def test_faults_are_reported_and_cuts_are_not() -> None:
    assert events_of(FakeDecoder(err=ConnectionResetError("cut"))) == []
    fault = "reported: unable to decode an event from the watch stream: bad"
    assert events_of(FakeDecoder(err=ValueError("bad"))) == [watch.Event(watch.ERROR, fault)]


def test_stop_ends_a_decode_that_waits_and_a_send_that_nobody_takes() -> None:
    for decoder in (FakeDecoder(block=True), FakeDecoder(watch.Event(watch.ADDED, "a"))):
        watcher = watch.StreamWatcher(decoder, FakeReporter())
        watcher.stop()
        watcher.stop()
        remaining = list(watcher.result_chan())
        assert len(remaining) <= 1


def test_fake_drops_what_comes_after_stop() -> None:
    watcher: FakeWatcher[str] = FakeWatcher()
    watcher.add("a")
    watcher.stop()
    watcher.delete("a")
    assert list(watcher.result_chan()) == [watch.Event(watch.ADDED, "a")]
