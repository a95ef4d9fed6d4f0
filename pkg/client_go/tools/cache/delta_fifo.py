"""A queue of objects, each with everything that happened to it since it was last taken out.

Go: k8s.io/client-go/tools/cache/delta_fifo.go
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pkg import golang, klog
from pkg.client_go.tools.cache.fifo import FIFOClosedError
from pkg.client_go.tools.cache.store import KeyFunc, KeyListerGetter, ObjectKeyError, meta_namespace_key_func


class DeltaType(enum.StrEnum):
    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"
    """The object was listed, first or again; whether it changed is not known."""
    SYNC = "Sync"
    """The object is reported again because it is time to."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One thing that happened to an object, and the object after it; of a deletion the last that was known."""

    type: DeltaType
    object: Any


Deltas = list[Delta]
"""What happened to one object, oldest first; never empty."""


@dataclass(frozen=True, slots=True)
class DeletedFinalStateUnknown:
    """Stands for an object whose deletion was missed: `obj` is how it was last seen, None if it was not."""

    key: str
    obj: Any


def deletion_handling_meta_namespace_key_func(obj: Any) -> str:
    """As meta_namespace_key_func, also for what stands for a deleted object.  Go: controller.go"""
    return obj.key if isinstance(obj, DeletedFinalStateUnknown) else meta_namespace_key_func(obj)


PopProcessFunc = Callable[[Deltas, bool], None]
"""Takes the deltas of an object, and whether it is of the first list."""


class DeltaFIFO:
    """Objects come out in the order in which they first came in, and each at most once at a time.

    `known_objects` is what the consumer has stored so far, by which deletions missed are noticed. Any thread may
    fill the queue; one may drain it.
    """

    def __init__(
        self,
        key_func: KeyFunc = meta_namespace_key_func,
        known_objects: KeyListerGetter[Any] | None = None,
        emit_delta_type_replaced: bool = False,
    ) -> None:
        self._key_func = key_func
        self._known_objects = known_objects
        self._replaced = DeltaType.REPLACED if emit_delta_type_replaced else DeltaType.SYNC
        self._lock = threading.Lock()  # guards the fields below; the known objects change only under it
        self._items: dict[str, Deltas] = {}
        self._queue: deque[str] = deque()  # has each key of _items once
        self._populated = False
        self._initial_population_count = 0  # what is still to be taken out of the first list
        self._closed = False  # only ever set, so close needs no lock
        self._wake: golang.Channel[None] = golang.Channel(1)  # there may be something new for pop
        self._synced: golang.Channel[None] = golang.Channel()

    def close(self) -> None:
        """End pop once the queue is empty."""
        self._closed = True
        self._wake.try_send(None)

    def is_closed(self) -> bool:
        return self._closed

    def key_of(self, obj: Any) -> str:
        """The key of an object, or of deltas, or of what stands for an object; raises ObjectKeyError."""
        if isinstance(obj, list):
            if not obj:
                raise ObjectKeyError(obj, "0 length Deltas object; can't get key")
            obj = obj[-1].object
        return obj.key if isinstance(obj, DeletedFinalStateUnknown) else self._key_func(obj)

    def has_synced(self) -> bool:
        """Whether all of the first list was taken out and processed, or something else came in before a list."""
        return self._synced.try_recv()[2]

    def done(self) -> golang.Channel[None]:
        """Closed once has_synced."""
        return self._synced

    def add(self, obj: Any) -> None:
        self._change(DeltaType.ADDED, obj)

    def update(self, obj: Any) -> None:
        self._change(DeltaType.UPDATED, obj)

    def delete(self, obj: Any) -> None:
        """Ignored for an object that is neither queued nor known: a list has told of that deletion before."""
        key = self.key_of(obj)
        with self._lock:
            self._set_populated_locked(0)
            known = self._known_objects is not None and self._known_objects.get_by_key(key) is not None
            if known or key in self._items:
                self._queue_action_locked(DeltaType.DELETED, obj)

    def get_by_key(self, key: str) -> Any | None:
        """The newest of an object that is queued or known; None if there is none, or its deletion is queued."""
        with self._lock:
            if deltas := self._items.get(key):
                return None if deltas[-1].type is DeltaType.DELETED else deltas[-1].object
            return self._known_objects.get_by_key(key) if self._known_objects is not None else None

    def pop(self, process: PopProcessFunc, ctx: golang.Context | None = None) -> Deltas:
        """Wait for an object and pass its deltas to `process`, which raises through and must not block.

        For want of memory, which is no fault of the object, it stays the first in the queue.
        The lock is held meanwhile, so that queue and known objects change as one.
        Raises FIFOClosedError when the queue is closed and empty, and ctx.err() once ctx is done.
        """
        done = ctx.done() if ctx is not None else None
        while True:
            with self._lock:
                if self._queue:
                    return self._process_next_locked(process)
            if self._closed:
                raise FIFOClosedError
            golang.select(self._wake, done)
            if ctx is not None:
                ctx.raise_if_done()

    def replace(self, objs: Iterable[Any], resource_version: str) -> None:
        """Queue all objects of a list, and the deletion of those queued or known that it lacks."""
        listed = [(self.key_of(obj), obj) for obj in objs]
        keys = {key for key, _ in listed}
        with self._lock:
            for _, obj in listed:
                self._queue_action_locked(self._replaced, obj)
            gone = self._find_gone_locked(keys)
            for deleted in gone:
                self._queue_action_locked(DeltaType.DELETED, deleted)
            self._set_populated_locked(len(keys) + len(gone))

    def resync(self) -> None:
        """Queue each known object that is not queued already, which would then go back in time."""
        if self._known_objects is None:
            return
        with self._lock:
            for key in self._known_objects.list_keys():
                self._sync_key_locked(key)

    def _change(self, type_: DeltaType, obj: Any) -> None:
        with self._lock:
            self._set_populated_locked(0)
            self._queue_action_locked(type_, obj)

    def _set_populated_locked(self, initial_population_count: int) -> None:
        """The first change of all says how many objects are to be taken out before it counts as synced."""
        if not self._populated:
            self._populated = True
            self._initial_population_count = initial_population_count
            self._check_synced_locked()

    def _check_synced_locked(self) -> None:
        if self._populated and self._initial_population_count == 0 and not self.has_synced():
            self._synced.close()

    def _queue_action_locked(self, type_: DeltaType, obj: Any) -> None:
        key = self.key_of(obj)
        if key not in self._items:
            self._items[key] = []
            self._queue.append(key)
        self._items[key].append(Delta(type_, obj))
        _dedup_deltas(self._items[key])
        self._wake.try_send(None)

    def _process_next_locked(self, process: PopProcessFunc) -> Deltas:
        is_in_initial_list = not self.has_synced()
        key = self._queue[0]
        deltas = self._items[key]
        try:
            process(deltas, is_in_initial_list)
        except MemoryError:
            raise
        except BaseException:
            self._take_out_first_locked()
            raise
        self._take_out_first_locked()
        return deltas

    def _take_out_first_locked(self) -> None:
        """To be called after the processing, so that who waits for the sync finds every object in its place."""
        del self._items[self._queue.popleft()]
        if self._initial_population_count > 0:
            self._initial_population_count -= 1
            self._check_synced_locked()

    def _find_gone_locked(self, keys: set[str]) -> list[DeletedFinalStateUnknown]:
        gone = {key: deltas[-1].object for key, deltas in self._items.items() if key not in keys}
        for key in self._known_objects.list_keys() if self._known_objects is not None else []:
            if key not in keys and key not in gone and self._known_objects is not None:
                gone[key] = self._known_objects.get_by_key(key)
        return [
            DeletedFinalStateUnknown(key, obj.obj if isinstance(obj, DeletedFinalStateUnknown) else obj)
            for key, obj in gone.items()
        ]

    def _sync_key_locked(self, key: str) -> None:
        assert self._known_objects is not None
        obj = self._known_objects.get_by_key(key)
        if obj is None:
            klog.info_s("Key does not exist in known objects store, unable to queue object for sync", key=key)
        elif self.key_of(obj) not in self._items:
            self._queue_action_locked(DeltaType.SYNC, obj)


def _dedup_deltas(deltas: Deltas) -> None:
    """Keep one of two deletions in a row: that with the object's real state."""
    if len(deltas) < 2 or any(delta.type is not DeltaType.DELETED for delta in deltas[-2:]):
        return
    newest = deltas.pop()
    if isinstance(deltas[-1].object, DeletedFinalStateUnknown):
        deltas[-1] = newest
