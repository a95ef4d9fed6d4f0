"""Deliver the changes of the selected objects as they occur, to HTTP clients and to code in this process.

Go: k8s.io/apiserver/pkg/storage/cacher, pkg/endpoints/handlers/watch.go
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from . import errors
from .interfaces import Object, WatchEvent
from .registry import Filter
from .resources import Resource
from .storage import ADDED, DELETED, Change, CompactedError, Entry, Storage, Watcher
from .tables import Form

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"
# A watch sends its last bookmark this many seconds before its end.
_LAST_BOOKMARK = 2.0


def open_watch(
    storage: Storage, resource: Resource, since: int | None, namespace: str, name: str
) -> Watcher | errors.ApiError:
    """Return a watcher, or the error that is the watch's only event."""
    try:
        return storage.watch(resource.plural, since, namespace, name)
    except CompactedError as err:
        return errors.expired(f"too old resource version: {since} ({err.oldest})")


def translate(change: Change, selected: Filter | None) -> tuple[str, Entry] | None:
    """Return the type and entry of a change for a watch with a filter, or None if the watch does not see it."""
    if selected is None:
        return change.type, change.entry
    now = change.type != DELETED and selected(change.entry)
    before = change.previous is not None and selected(change.previous)
    if now:
        return (change.type if before else ADDED), change.entry
    return (DELETED, change.gone()) if before else None


def error_line(error: errors.ApiError) -> bytes:
    return msgspec.json.encode({"type": ERROR, "object": error.status}) + b"\n"


class Lines:
    """Yield the body of a watch, one line for each event."""

    def __init__(
        self,
        watcher: Watcher,
        resource: Resource,
        form: Form,
        selected: Filter | None,
        *,
        timeout: float,
        bookmarks: bool,
        bookmark_interval: float,
        initial_events: bool,
        mark_initial_events_end: bool,
    ) -> None:
        self._watcher = watcher
        self._resource = resource
        self._form = form
        self._selected = selected
        self._end = time.monotonic() + timeout
        self._bookmarks = bookmarks
        self._interval = bookmark_interval
        self._initial_events = initial_events
        self._mark_end = mark_initial_events_end

    def __iter__(self) -> Iterator[bytes]:
        yield from self._initial()
        next_bookmark = min(time.monotonic() + self._interval, max(self._end - _LAST_BOOKMARK, time.monotonic()))
        while not self._watcher.stopped:
            now = time.monotonic()
            if now >= self._end:
                return
            due = self._bookmarks and now >= next_bookmark
            if due and (version := self._watcher.caught_up()) is not None:
                yield self._bookmark(version)
                last = self._end - _LAST_BOOKMARK
                next_bookmark = min(now + self._interval, last) if now < last else self._end + 1
            until = min(self._end, next_bookmark) if self._bookmarks else self._end
            if (change := self._watcher.next(max(until - now, 0))) is not None and (line := self._line(change)):
                yield line

    def _initial(self) -> Iterator[bytes]:
        if self._initial_events:
            for entry in self._watcher.initial:
                if self._selected is None or self._selected(entry):
                    yield self._encode(ADDED, entry)
        self._watcher.initial = []
        if self._mark_end:
            yield self._bookmark(self._watcher.version, {INITIAL_EVENTS_END: "true"})

    def _line(self, change: Change) -> bytes | None:
        translated = translate(change, self._selected)
        if translated is None:
            return None
        key = (translated[0], self._form.key)
        if (line := change.lines.get(key)) is None:
            line = change.lines[key] = self._encode(*translated)
        return line

    def _encode(self, type: str, entry: Entry) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type.encode(), self._form.encode(entry))

    def _bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if annotations:
            meta["annotations"] = annotations
        obj: Object = {"kind": self._resource.kind, "apiVersion": self._resource.group_version, "metadata": meta}
        if self._resource.kind == "Pod":
            obj |= {"spec": {"containers": None}, "status": {}}  # Upstream's type writes an empty pod this way.
        return msgspec.json.encode({"type": BOOKMARK, "object": self._form.bookmark(obj)}) + b"\n"


class LocalWatch:
    """Deliver a watch's events to code in the same process."""

    def __init__(self, watcher: Watcher, selected: Filter | None) -> None:
        self._watcher = watcher
        self._selected = selected

    def __iter__(self) -> Iterator[WatchEvent]:
        yield from self._initial()
        while not self._watcher.stopped:
            if (event := self._next(None)) is not None:
                yield event

    def pending(self) -> Iterator[WatchEvent]:
        yield from self._initial()
        while not self._watcher.is_empty():
            if (event := self._next(0)) is not None:
                yield event

    def stop(self) -> None:
        self._watcher.stop()

    def _initial(self) -> Iterator[WatchEvent]:
        for entry in self._watcher.initial:
            if self._selected is None or self._selected(entry):
                yield WatchEvent(ADDED, entry.copy())
        self._watcher.initial = []

    def _next(self, timeout: float | None) -> WatchEvent | None:
        change = self._watcher.next(timeout)
        if change is None or (translated := translate(change, self._selected)) is None:
            return None
        return WatchEvent(translated[0], translated[1].copy())
