"""A queue of everything that happens to the objects of a kind, in the order in which it happens.

Go: k8s.io/client-go/tools/cache/the_real_fifo.go
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pkg import golang, klog
from pkg.client_go.tools.cache.delta_fifo import DeletedFinalStateUnknown, Delta, Deltas, DeltaType
from pkg.client_go.tools.cache.fifo import FIFOClosedError, PopProcessFunc, ProcessBatchFunc
from pkg.client_go.tools.cache.store import KeyFunc, KeyListerGetter, TransactionError, meta_namespace_key_func

# How many deltas may be processed at once.
_BATCH_SIZE = 1000

_BATCHABLE = {DeltaType.SYNC, DeltaType.REPLACED, DeltaType.ADDED, DeltaType.UPDATED, DeltaType.DELETED}


@dataclass(frozen=True, slots=True)
class ReplacedAllInfo:
    """The object of a delta that says what all objects are now."""

    resource_version: str
    objects: list[Any]


class RealFIFO:
    """Deltas come out as they went in, each by itself. Any thread may fill the queue; one may drain it.

    `known_objects` is what the consumer has stored so far. With `atomic_events` a list, and a resync, is one delta,
    which the consumer compares with the store; otherwise the queue compares and has a delta for each object. With
    `unlock_while_processing` the queue can be filled while deltas are processed, unless too many wait already.
    """

    def __init__(
        self,
        known_objects: KeyListerGetter[Any],
        key_func: KeyFunc = meta_namespace_key_func,
        atomic_events: bool = False,
        unlock_while_processing: bool = False,
    ) -> None:
        """Raises ValueError for unlock_while_processing alone: then the store may not change by itself."""
        if unlock_while_processing and not atomic_events:
            raise ValueError("unlock_while_processing must be false when atomic_events is false")
        self._known_objects = known_objects
        self._key_func = key_func
        self._emit_atomic_events = atomic_events
        self._unlock_while_processing = unlock_while_processing
        self._batch_size = _BATCH_SIZE
        self._lock = threading.Lock()  # guards the fields below
        # Deltas that are being processed are still the first ones here, so that they can be tried again.
        self._items: deque[Delta] = deque()
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
        """The key of an object, or of what stands for a deleted one; raises ObjectKeyError."""
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
        self._change(DeltaType.DELETED, obj)

    def get_by_key(self, key: str) -> Any | None:
        """The newest of an object that is queued or known; None if there is none, or its deletion is queued."""
        with self._lock:
            for item in reversed(self._items):
                if item.type is DeltaType.REPLACED_ALL:
                    return next((obj for obj in item.object.objects if self.key_of(obj) == key), None)
                if item.type is not DeltaType.SYNC_ALL and self.key_of(item.object) == key:
                    return None if item.type is DeltaType.DELETED else item.object
            return self._known_objects.get_by_key(key)

    def pop(self, process: PopProcessFunc, ctx: golang.Context | None = None) -> Deltas:
        """Wait for a delta and pass it, alone in a list, to `process`, which raises through and must not block.

        For want of memory, which is no fault of the object, it stays the first in the queue.
        Raises FIFOClosedError when the queue is closed and empty, and ctx.err() once ctx is done.
        """
        while True:
            with self._lock:
                if self._items:
                    return self._process_locked([self._items[0]], process)
            self._wait(ctx)

    def pop_batch(
        self, process_batch: ProcessBatchFunc, process_single: PopProcessFunc, ctx: golang.Context | None = None
    ) -> None:
        """As pop, for several deltas of as many objects, if that many are queued and can go to `process_batch`.

        Of the deltas that `process_batch` could not process, those stay in the queue for which there was no memory.
        Then MemoryError is raised.
        """
        while True:
            with self._lock:
                if self._items:
                    deltas = self._next_batch_locked()
                    self._process_locked(deltas, process_single if len(deltas) == 1 else process_batch)
                    return
            self._wait(ctx)

    def replace(self, objs: Iterable[Any], resource_version: str) -> None:
        """Queue all objects of a list, which is to take the place of all before."""
        new_items = [*objs]
        with self._lock:
            if self._emit_atomic_events:
                self._append_locked(Delta(DeltaType.REPLACED_ALL, ReplacedAllInfo(resource_version, new_items)))
            else:
                for gone in reconcile_replacement(self._items, self._known_objects, new_items, self.key_of):
                    self._add_to_items_locked(DeltaType.DELETED, gone)
                for obj in new_items:
                    self._add_to_items_locked(DeltaType.REPLACED, obj)
            self._set_populated_locked(len(self._items))

    def resync(self) -> None:
        """Queue each known object, or that all are due; none that is queued already, which would go back in time."""
        with self._lock:
            if self._emit_atomic_events:
                self._append_locked(Delta(DeltaType.SYNC_ALL, None))
                return
            queued = {self.key_of(item.object) for item in self._items}
            for key in self._known_objects.list_keys():
                if key not in queued:
                    self._sync_key_locked(key)

    def _change(self, type_: DeltaType, obj: Any) -> None:
        with self._lock:
            self._set_populated_locked(0)
            self._add_to_items_locked(type_, obj)

    def _set_populated_locked(self, initial_population_count: int) -> None:
        """The first change of all says how many deltas are to be taken out before it counts as synced."""
        if not self._populated:
            self._populated = True
            self._initial_population_count = initial_population_count
            self._check_synced_locked()

    def _check_synced_locked(self) -> None:
        if self._populated and self._initial_population_count == 0 and not self.has_synced():
            self._synced.close()

    def _add_to_items_locked(self, type_: DeltaType, obj: Any) -> None:
        self.key_of(obj)  # what has no key is refused here, so that all that is queued has one
        self._append_locked(Delta(type_, obj))

    def _append_locked(self, delta: Delta) -> None:
        self._items.append(delta)
        self._wake.try_send(None)

    def _wait(self, ctx: golang.Context | None) -> None:
        """Wait until there may be something to pop."""
        if self._closed:
            raise FIFOClosedError
        golang.select(self._wake, ctx.done() if ctx is not None else None)
        if ctx is not None:
            ctx.raise_if_done()

    def _next_batch_locked(self) -> Deltas:
        """The first deltas that can be processed at once: of as many objects, and of the first list or none of it."""
        limit = min(self._batch_size, self._initial_population_count or self._batch_size)
        deltas: Deltas = []
        keys: set[str] = set()
        for item in itertools.islice(self._items, limit):
            if item.type not in _BATCHABLE:
                return deltas or [item]
            key = self.key_of(item.object)
            if key in keys:
                break
            keys.add(key)
            deltas.append(item)
        return deltas

    def _process_locked(self, deltas: Deltas, process: PopProcessFunc) -> Deltas:
        """Process what is first in the queue, and take it out afterwards, so that who waits for the sync finds it."""
        is_in_initial_list = not self.has_synced()
        try:
            with self._while_processing_locked(len(deltas)):
                process(deltas, is_in_initial_list)
        except MemoryError:
            raise
        except TransactionError as err:
            starved = {index for index, each in err.errors.items() if isinstance(each, MemoryError)}
            self._take_out_locked(len(deltas), starved)
            if starved:
                raise MemoryError(str(err)) from None
            raise
        except BaseException:
            self._take_out_locked(len(deltas))
            raise
        self._take_out_locked(len(deltas))
        return deltas

    @contextmanager
    def _while_processing_locked(self, count: int) -> Iterator[None]:
        """Let go of the lock meanwhile, unless two batches wait: then who fills the queue waits for who drains it."""
        if not self._unlock_while_processing or len(self._items) - count >= 2 * self._batch_size:
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    def _take_out_locked(self, count: int, kept: Collection[int] = ()) -> None:
        """Take out the first of the queue, apart from those kept, which have these indices."""
        left = 0
        for index in range(count):
            if index in kept:
                left += 1
            else:
                del self._items[left]
        if self._initial_population_count > 0:
            self._initial_population_count -= count - left
            self._check_synced_locked()

    def _sync_key_locked(self, key: str) -> None:
        obj = self._known_objects.get_by_key(key)
        if obj is None:
            klog.error_s(None, "Key does not exist in known objects store, unable to queue object for sync", key=key)
        else:
            self._add_to_items_locked(DeltaType.SYNC, obj)


def reconcile_replacement(
    queued_items: Iterable[Delta], known_objects: KeyListerGetter[Any], new_items: Iterable[Any], key_of: KeyFunc
) -> list[DeletedFinalStateUnknown]:
    """What a list no longer has of the objects queued, and of those known; raises ObjectKeyError.

    Of an object that is queued, the last delta says whether it was there before the list.
    """
    new_keys = {key_of(obj) for obj in new_items}
    last_queued = {key_of(item.object): item for item in queued_items}
    gone = [
        DeletedFinalStateUnknown(key, item.object)
        for key, item in last_queued.items()
        if key not in new_keys and item.type is not DeltaType.DELETED
    ]
    for key in known_objects.list_keys():
        if key in new_keys or key in last_queued:
            continue
        obj = known_objects.get_by_key(key)
        if obj is None:
            what = "Key does not exist in known objects store, placing DeleteFinalStateUnknown marker without object"
            klog.error_s(None, what, key=key)
        gone.append(DeletedFinalStateUnknown(key, obj))
    return gone
