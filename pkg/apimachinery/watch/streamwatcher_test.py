"""Test a watch over a stream."""

from __future__ import annotations

from pkg.apimachinery import watch
from pkg.apimachinery.watch.testing import FakeDecoder, FakeReporter, FakeWatcher
from pkg.golang.testing import closes


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
