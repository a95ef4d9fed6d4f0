"""Broadcaster: who gets which events, and that nobody waits who must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pkg import golang
from pkg.apimachinery import watch
from pkg.apimachinery.watch import mux

WAIT = 10.0


def received(watcher: mux._BroadcasterWatcher[str]) -> list[tuple[str, str]]:
    """All events of a watch that has ended or ends now."""
    events: list[tuple[str, str]] = []
    while True:
        event, ok = watcher.result_chan().recv(WAIT)
        if not ok or event is None:
            return events
        events.append((event.type, event.object))


def within_time(function: Callable[[], object]) -> None:
    """Fail instead of hanging if the function does not return."""
    thread = golang.go(function, name="within-time")
    thread.join(WAIT)
    assert not thread.is_alive(), "does not return"


EVENTS = [(watch.ADDED, "foo"), (watch.MODIFIED, "foo"), (watch.DELETED, "bar")]


def test_every_watcher_gets_every_event_in_order() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(0, mux.WAIT_IF_CHANNEL_FULL)
    watchers = [broadcaster.watch() for _ in range(3)]
    got: list[list[tuple[str, str]]] = [[] for _ in watchers]
    readers = [golang.go(lambda i=i, w=w: got[i].extend(received(w)), name="reader") for i, w in enumerate(watchers)]
    for type_, obj in EVENTS:
        broadcaster.action(type_, obj)
    broadcaster.shutdown()
    for reader in readers:
        reader.join(WAIT)
    assert got == [EVENTS] * 3


def test_only_events_after_the_watch() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(5, mux.WAIT_IF_CHANNEL_FULL)
    broadcaster.action(watch.ADDED, "before")
    watcher = broadcaster.watch()
    broadcaster.action(watch.ADDED, "after")
    broadcaster.shutdown()
    assert received(watcher) == [(watch.ADDED, "after")]


def test_watch_with_prefix() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(1, mux.WAIT_IF_CHANNEL_FULL)
    watcher = broadcaster.watch_with_prefix([watch.Event(watch.ADDED, "a"), watch.Event(watch.ADDED, "b")])
    broadcaster.action(watch.ADDED, "c")
    within_time(broadcaster.shutdown)
    assert [obj for _, obj in received(watcher)] == ["a", "b", "c"]


def test_stop_ends_one_watch() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(5, mux.WAIT_IF_CHANNEL_FULL)
    stopped, other = broadcaster.watch(), broadcaster.watch()
    stopped.stop()
    stopped.stop()
    assert stopped.result_chan().recv(0) == (None, False)
    assert stopped.result_chan().try_recv()[2], "the channel is closed"
    broadcaster.action(watch.ADDED, "a")
    broadcaster.shutdown()
    other.stop()
    assert received(other) == [(watch.ADDED, "a")]


def test_stop_of_a_watcher_that_everybody_waits_for() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(0, mux.WAIT_IF_CHANNEL_FULL)
    watchers = [broadcaster.watch(), broadcaster.watch()]
    broadcaster.action(watch.ADDED, "a")
    got = golang.select(*(watcher.result_chan() for watcher in watchers), timeout=WAIT).index
    within_time(watchers[1 - got].stop)
    within_time(broadcaster.shutdown)


def test_drop_if_channel_full() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(1, mux.DROP_IF_CHANNEL_FULL)
    slow = [broadcaster.watch(), broadcaster.watch()]
    for type_, obj in EVENTS:
        broadcaster.action(type_, obj)
    within_time(broadcaster.shutdown)
    assert [received(watcher) for watcher in slow] == [EVENTS[:1]] * 2


def test_action_or_drop_never_waits() -> None:
    """Not even while others wait for the queue, or to watch."""
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(0, mux.WAIT_IF_CHANNEL_FULL, incoming_queue_length=2)
    stuck = broadcaster.watch()
    sent = 0
    while broadcaster.action_or_drop(watch.ADDED, str(sent)):
        sent += 1
    added: golang.Channel[None] = golang.Channel(1)

    def watch_late() -> None:
        watcher = broadcaster.watch()
        added.send(None)
        received(watcher)

    late = golang.go(watch_late, name="late-watch")
    waiting = golang.go(broadcaster.action, watch.ADDED, "waits", name="waiting-action")
    dropped: list[bool] = []
    within_time(lambda: dropped.append(broadcaster.action_or_drop(watch.ADDED, "dropped")))
    assert dropped == [False]
    within_time(stuck.stop)
    waiting.join(WAIT)
    assert added.recv(WAIT)[1]
    within_time(broadcaster.shutdown)
    late.join(WAIT)


def test_a_long_queue() -> None:
    broadcaster: mux.Broadcaster[str] = mux.new_long_queue_broadcaster(100, mux.DROP_IF_CHANNEL_FULL)
    watcher = broadcaster.watch()
    assert all(broadcaster.action_or_drop(watch.ADDED, str(i)) for i in range(100))
    broadcaster.shutdown()
    assert [obj for _, obj in received(watcher)] == [str(i) for i in range(100)]


def test_after_shutdown() -> None:
    broadcaster: mux.Broadcaster[str] = mux.Broadcaster(1, mux.DROP_IF_CHANNEL_FULL)
    broadcaster.shutdown()
    broadcaster.shutdown()
    calls: list[Callable[[], object]] = [
        broadcaster.watch,
        lambda: broadcaster.watch_with_prefix([watch.Event(watch.ADDED, "a")]),
        lambda: broadcaster.action(watch.ADDED, "a"),
        lambda: broadcaster.action_or_drop(watch.ADDED, "a"),
    ]
    for call in calls:
        with pytest.raises(mux.BroadcasterStoppedError, match="broadcaster already stopped"):
            call()


def test_watchers_that_stop_while_it_shuts_down() -> None:
    for _ in range(50):
        broadcaster: mux.Broadcaster[str] = mux.Broadcaster(1, mux.WAIT_IF_CHANNEL_FULL)
        watchers = [broadcaster.watch() for _ in range(2)]
        broadcaster.action(watch.ADDED, "a")
        stopping = [golang.go(watcher.stop, name="stop") for watcher in watchers]
        within_time(broadcaster.shutdown)
        for thread in stopping:
            thread.join(WAIT)
            assert not thread.is_alive()
