"""Hands every event to any number of watchers.

Go: staging/src/k8s.io/apimachinery/pkg/watch/mux.go
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pkg import golang
from pkg.apimachinery.watch.watch import Event

T = TypeVar("T")

# Events that may wait for the thread that distributes them.
_INCOMING_QUEUE_LENGTH = 25


class FullChannelBehavior(enum.IntEnum):
    """What becomes of an event for a watcher whose queue is full."""

    WAIT_IF_CHANNEL_FULL = 0
    """It waits, and all later ones for everybody with it."""
    DROP_IF_CHANNEL_FULL = 1
    """That watcher does not get it."""


WAIT_IF_CHANNEL_FULL = FullChannelBehavior.WAIT_IF_CHANNEL_FULL
DROP_IF_CHANNEL_FULL = FullChannelBehavior.DROP_IF_CHANNEL_FULL


class BroadcasterStoppedError(Exception):
    def __init__(self) -> None:
        super().__init__("broadcaster already stopped")


class Broadcaster(Generic[T]):
    """Has a thread, until shutdown, that gives each event to all watchers, in the order of the events.

    Watchers come and go through the same queue as the events, so one that is added gets exactly the events that
    come after. DIVERGES: no lock is held while that queue is full, so action_or_drop never waits for anything;
    whoever waits in `action` when the broadcaster is shut down gets BroadcasterStoppedError.
    """

    def __init__(
        self,
        queue_length: int,
        full_channel_behavior: FullChannelBehavior,
        incoming_queue_length: int = _INCOMING_QUEUE_LENGTH,
    ) -> None:
        """`queue_length` is how many events may wait for each watcher."""
        self._watch_queue_length = queue_length
        self._full_channel_behavior = full_channel_behavior
        self._incoming: golang.Channel[Event[T] | Callable[[], None]] = golang.Channel(incoming_queue_length)
        self._watchers: dict[_BroadcasterWatcher[T], None] = {}  # only the distributing thread uses it
        self._distributing = golang.go(self._loop, name="broadcaster")

    def watch(self) -> _BroadcasterWatcher[T]:
        """A new watcher, of events from now on. Raises BroadcasterStoppedError."""
        return self.watch_with_prefix([])

    def watch_with_prefix(self, queued_events: Sequence[Event[T]]) -> _BroadcasterWatcher[T]:
        """As watch, beginning with the given events."""
        length = max(self._watch_queue_length, len(queued_events) + 1) if queued_events else self._watch_queue_length
        watcher = _BroadcasterWatcher(self, length)

        def add() -> None:
            for event in queued_events:
                watcher.result.try_send(event)
            self._watchers[watcher] = None

        if not self._run_in_order(add):
            raise BroadcasterStoppedError
        return watcher

    def action(self, action: str, obj: T) -> None:
        """Distribute an event; waits while the queue is full. Raises BroadcasterStoppedError."""
        try:
            self._incoming.send(Event(action, obj))
        except golang.ClosedChannelError:
            raise BroadcasterStoppedError from None

    def action_or_drop(self, action: str, obj: T) -> bool:
        """Distribute an event unless the queue is full; returns whether. Raises BroadcasterStoppedError."""
        try:
            return self._incoming.try_send(Event(action, obj))
        except golang.ClosedChannelError:
            raise BroadcasterStoppedError from None

    def shutdown(self) -> None:
        """Distribute what is queued, then end all watchers; returns when that is done."""
        self._run_in_order(self._incoming.close)
        self._distributing.join()

    def _stop_watching(self, watcher: _BroadcasterWatcher[T]) -> None:
        def remove() -> None:
            del self._watchers[watcher]
            watcher.result.close()

        self._run_in_order(remove)

    def _run_in_order(self, function: Callable[[], None]) -> bool:
        """Run the function between the events queued before and after; False if the broadcaster has stopped."""
        done: golang.Channel[None] = golang.Channel()

        def run() -> None:
            function()
            done.close()

        try:
            self._incoming.send(run)
        except golang.ClosedChannelError:
            return False
        done.recv()
        return True

    def _loop(self) -> None:
        for item in self._incoming:
            if isinstance(item, Event):
                self._distribute(item)
            else:
                item()
        for watcher in self._watchers:
            watcher.result.close()
        self._watchers = {}

    def _distribute(self, event: Event[T]) -> None:
        for watcher in self._watchers:
            if self._full_channel_behavior is DROP_IF_CHANNEL_FULL:
                watcher.result.try_send(event)
            else:
                golang.select(golang.Send(watcher.result, event), watcher.stopped)


def new_long_queue_broadcaster(queue_length: int, full_channel_behavior: FullChannelBehavior) -> Broadcaster[T]:
    """A broadcaster in which as many events may wait to be distributed as for each watcher."""
    return Broadcaster(queue_length, full_channel_behavior, queue_length)


class _BroadcasterWatcher(Generic[T]):
    """One watcher: a watch.Interface."""

    def __init__(self, broadcaster: Broadcaster[T], queue_length: int) -> None:
        self.result: golang.Channel[Event[T]] = golang.Channel(queue_length)
        self.stopped: golang.Channel[None] = golang.Channel()
        self._broadcaster = broadcaster
        self._stop_lock = threading.Lock()  # guards the closing of stopped

    def result_chan(self) -> golang.Channel[Event[T]]:
        return self.result

    def stop(self) -> None:
        """Get no more events; returns when that is so."""
        with self._stop_lock:
            if self.stopped.try_recv()[2]:
                return
            self.stopped.close()
        self._broadcaster._stop_watching(self)
