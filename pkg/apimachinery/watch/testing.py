"""Provide a watch whose events a test sends."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from pkg import golang
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.watch.watch import ADDED, BOOKMARK, DELETED, ERROR, MODIFIED, Event

T = TypeVar("T")

_UNLIMITED = 1 << 60


class FakeWatcher(Generic[T]):
    """Implement watch.Interface; events after stop are dropped.

    Sending blocks only if the watch has a capacity.
    """

    def __init__(self, capacity: int = _UNLIMITED) -> None:
        self._result: golang.Channel[Event[T]] = golang.Channel(capacity)
        self._lock = threading.Lock()  # The lock guards stopped.
        self.stopped = False

    def stop(self) -> None:
        with self._lock:
            if self.stopped:
                return
            self.stopped = True
        self._result.close()

    def result_chan(self) -> golang.Channel[Event[T]]:
        return self._result

    def add(self, obj: T) -> None:
        self.action(ADDED, obj)

    def modify(self, obj: T) -> None:
        self.action(MODIFIED, obj)

    def delete(self, last: T) -> None:
        self.action(DELETED, last)

    def bookmark(self, obj: T) -> None:
        self.action(BOOKMARK, obj)

    def error(self, status: metav1.Status) -> None:
        self.action(ERROR, status)

    def action(self, type: str, obj: T | metav1.Status) -> None:
        try:
            self._result.send(Event(type, obj))  # type: ignore[arg-type]
        except golang.ClosedChannelError:
            return


class FakeDecoder:
    """Return the events, then raise the exception if there is one, and then block until close if `block` is set."""

    def __init__(self, *events: Event[str], err: Exception | None = None, block: bool = False) -> None:
        self._events = list(events)
        self._err = err
        self._block = block
        self.closed: golang.Channel[None] = golang.Channel()

    def decode(self) -> Event[str] | None:
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
    """Turn each error into a text."""

    def as_object(self, err: Exception) -> str:
        return f"reported: {err}"
