"""Serve objects that tests change, list and watch.

Go: k8s.io/client-go/tools/cache/testing/fake_controller_source.go
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from pkg import golang
from pkg.apimachinery import watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools import cache, pager

T = TypeVar("T")

_Event = watch.Event  # Within the class, `watch` is the method.


def expired() -> apierrors.StatusError:
    """Return the API server's error for a resource version that it no longer has."""
    return apierrors.new_resource_expired("too old resource version")


class FakeWatch(Generic[T]):
    """Represent a watch whose events the test sends; sending never blocks."""

    def __init__(self, *events: watch.Event[T]) -> None:
        self._events: golang.Channel[watch.Event[T]] = golang.Channel(sys.maxsize)
        self._lock = threading.Lock()  # The lock guards the closing of the channel.
        self._closed = False
        self.stopped = threading.Event()
        """The watcher sets this event when it stops the watch."""
        for event in events:
            self.send(event)

    def send(self, event: watch.Event[T]) -> None:
        """Send an event, unless the watch has ended."""
        with self._lock:
            if not self._closed:
                self._events.try_send(event)

    def end(self) -> None:
        """End the watch as a server would."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._events.close()

    def stop(self) -> None:
        self.stopped.set()
        self.end()

    def result_chan(self) -> golang.Channel[watch.Event[T]]:
        return self._events


class FakeControllerSource(Generic[T]):
    """Implement ListerWatcher in memory, with versions, pages, watches from a version, and injected errors."""

    def __init__(self, object_type: type[T], watch_list: bool = True) -> None:
        """Prepare an empty source; without watch_list it refuses to start watches with the existing objects."""
        self.calls: builtins.list[tuple[str, metav1.ListOptions]] = []
        """Each entry is the verb and the options of one call."""
        self.list_errors: deque[Exception] = deque()
        """The next calls of list raise these errors."""
        self.watch_errors: deque[Exception] = deque()
        """The next calls of watch raise these errors."""
        self.watch_list = watch_list
        self._object_type = object_type
        self._lock = threading.Lock()  # The lock guards all fields.
        self._version = 1
        self._oldest = 1  # A watch can start at this version or a later one.
        self._objects: dict[str, Any] = {}
        self._history: builtins.list[tuple[int, _Event[T]]] = []
        self._watches: builtins.list[FakeWatch[T]] = []

    def add(self, *objs: T) -> None:
        for obj in objs:
            self._change(watch.ADDED, obj)

    def modify(self, obj: T) -> None:
        self._change(watch.MODIFIED, obj)

    def delete(self, obj: T) -> None:
        self._change(watch.DELETED, obj)

    def objects(self) -> dict[str, T]:
        """Return the objects by key."""
        with self._lock:
            return dict(self._objects)

    def version(self) -> str:
        with self._lock:
            return str(self._version)

    def bookmark(self) -> None:
        """Send the current version to the watches."""
        with self._lock:
            self._send_locked(self._bookmark_locked())

    def fail_watches(self, err: apierrors.StatusError) -> None:
        """Send the error to the watches and end them."""
        with self._lock:
            status: Any = err.status
            self._send_locked(watch.Event(watch.ERROR, status))
            self._end_watches_locked()

    def cut_watches(self) -> None:
        """End the watches abruptly."""
        with self._lock:
            self._end_watches_locked()

    def compact(self) -> None:
        """Forget the history, so that watches can start at the current version only."""
        with self._lock:
            self._oldest = self._version
            self._history = []

    def watches(self) -> builtins.list[FakeWatch[T]]:
        """Return the watches that are still running."""
        with self._lock:
            return [w for w in self._watches if not w.stopped.is_set()]

    def list(self, ctx: golang.Context, options: metav1.ListOptions) -> pager.Page[T]:
        with self._lock:
            self.calls.append(("list", options))
            if self.list_errors:
                raise self.list_errors.popleft()
            start = int(options.continue_ or "0")
            end = start + options.limit if options.limit else len(self._objects)
            more = str(end) if end < len(self._objects) else ""
            meta = metav1.ListMeta(resource_version=str(self._version), continue_=more)
            return pager.List(meta, [*self._objects.values()][start:end])

    def watch(self, ctx: golang.Context, options: metav1.ListOptions) -> watch.Interface[T]:
        with self._lock:
            self.calls.append(("watch", options))
            if self.watch_errors:
                raise self.watch_errors.popleft()
            started = FakeWatch(*self._first_events_locked(options))
            self._watches.append(started)
            return started

    def _first_events_locked(self, options: metav1.ListOptions) -> Iterable[_Event[T]]:
        if options.send_initial_events:
            if not self.watch_list:
                raise apierrors.new_invalid("ListOptions", "", "sendInitialEvents is forbidden for watch")
            end = self._bookmark_locked({metav1.INITIAL_EVENTS_ANNOTATION_KEY: "true"})
            return [*(watch.Event(watch.ADDED, obj) for obj in self._objects.values()), end]
        since = int(options.resource_version or "0")
        if since == 0:
            return [watch.Event(watch.ADDED, obj) for obj in self._objects.values()]
        if since < self._oldest:
            raise expired()
        return [event for version, event in self._history if version > since]

    def _change(self, type_: str, obj: T) -> None:
        with self._lock:
            self._version += 1
            stored: Any = metav1.deepcopy(obj)
            stored.metadata.resource_version = str(self._version)
            key = cache.meta_namespace_key_func(stored)
            if type_ == watch.DELETED:
                del self._objects[key]
            else:
                self._objects[key] = stored
            event = watch.Event(type_, stored)
            self._history.append((self._version, event))
            self._send_locked(event)

    def _bookmark_locked(self, annotations: dict[str, str] | None = None) -> _Event[T]:
        meta = metav1.ObjectMeta(resource_version=str(self._version), annotations=annotations or {})
        obj: Any = self._object_type
        return watch.Event(watch.BOOKMARK, obj(metadata=meta))

    def _send_locked(self, event: _Event[T]) -> None:
        for w in self._watches:
            w.send(event)

    def _end_watches_locked(self) -> None:
        for w in self._watches:
            w.end()
        self._watches = []
