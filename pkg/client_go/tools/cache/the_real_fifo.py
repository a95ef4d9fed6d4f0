"""Queue everything that happens to the objects of one kind, in the order in which it happens.

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

# `_BATCH_SIZE` is the maximum number of deltas in one batch.
_BATCH_SIZE = 1000

_BATCHABLE = {DeltaType.SYNC, DeltaType.REPLACED, DeltaType.ADDED, DeltaType.UPDATED, DeltaType.DELETED}


@dataclass(frozen=True, slots=True)
class ReplacedAllInfo:
    """Hold all objects of a list, as the object of a ReplacedAll delta."""

    resource_version: str
    objects: list[Any]


class RealFIFO:
    """Return each delta by itself, in the order in which the deltas were added.

    Any thread may fill the queue; only one thread may drain it. `known_objects` is what the consumer has stored so far.
    With `atomic_events`, a list or a resync is one delta, and the consumer compares it with the store. Otherwise the
    queue compares, and adds one delta for each object. With `unlock_while_processing`, other threads can fill the queue
    while deltas are processed, unless too many deltas are waiting already.
    """

    def __init__(
        self,
        known_objects: KeyListerGetter[Any],
        key_func: KeyFunc = meta_namespace_key_func,
        atomic_events: bool = False,
        unlock_while_processing: bool = False,
    ) -> None:
        """Raise ValueError for unlock_while_processing without atomic_events.

        Without atomic events the queue compares each list with the store, which must not change meanwhile.
        """
        if unlock_while_processing and not atomic_events:
            raise ValueError("unlock_while_processing must be false when atomic_events is false")
        self._known_objects = known_objects
        self._key_func = key_func
        self._emit_atomic_events = atomic_events
        self._unlock_while_processing = unlock_while_processing
        self._batch_size = _BATCH_SIZE
        self._lock = threading.Lock()  # The lock guards the fields below.
        # Deltas that are being processed stay at the head of the queue, so that a failed attempt can be repeated.
        self._items: deque[Delta] = deque()
        self._populated = False
        # `_initial_population_count` is the number of deltas of the first list that are still in the queue.
        self._initial_population_count = 0
        self._closed = False  # The flag only ever changes to True, so close needs no lock.
        # A value in this channel means that pop may find something new.
        self._wake: golang.Channel[None] = golang.Channel(1)
        self._synced: golang.Channel[None] = golang.Channel()

    def close(self) -> None:
        """End pop once the queue is empty."""
        self._closed = True
        self._wake.try_send(None)

    def is_closed(self) -> bool:
        return self._closed

    def key_of(self, obj: Any) -> str:
        """Return the key of an object or of a DeletedFinalStateUnknown; raise ObjectKeyError if it has none."""
        return obj.key if isinstance(obj, DeletedFinalStateUnknown) else self._key_func(obj)

    def has_synced(self) -> bool:
        """Report whether the first list was processed, or another change arrived before any list."""
        return self._synced.try_recv()[2]

    def done(self) -> golang.Channel[None]:
        """Return the channel that is closed once has_synced returns True."""
        return self._synced

    def add(self, obj: Any) -> None:
        self._change(DeltaType.ADDED, obj)

    def update(self, obj: Any) -> None:
        self._change(DeltaType.UPDATED, obj)

    def delete(self, obj: Any) -> None:
        self._change(DeltaType.DELETED, obj)

    def get_by_key(self, key: str) -> Any | None:
        """Return the newest queued or known version of an object.

        Return None if the object does not exist or its deletion is queued.
        """
        with self._lock:
            for item in reversed(self._items):
                if item.type is DeltaType.REPLACED_ALL:
                    return next((obj for obj in item.object.objects if self.key_of(obj) == key), None)
                if item.type is not DeltaType.SYNC_ALL and self.key_of(item.object) == key:
                    return None if item.type is DeltaType.DELETED else item.object
            return self._known_objects.get_by_key(key)

    def pop(self, process: PopProcessFunc, ctx: golang.Context | None = None) -> Deltas:
        """Wait for a delta, and pass it to `process` in a list of one.

        An exception of `process`, which must not block, propagates. After MemoryError, which is not the object's fault,
        the delta stays at the head of the queue.

        Raise FIFOClosedError when the queue is closed and empty, and ctx.err() once ctx is done.
        """
        while True:
            with self._lock:
                if self._items:
                    return self._process_locked([self._items[0]], process)
            self._wait(ctx)

    def pop_batch(
        self, process_batch: ProcessBatchFunc, process_single: PopProcessFunc, ctx: golang.Context | None = None
    ) -> None:
        """Pass several deltas, each of a different object, to `process_batch`, or a single delta to `process_single`.

        Deltas for which `process_batch` had no memory stay in the queue, and MemoryError is raised. Other errors are
        raised as by pop.
        """
        while True:
            with self._lock:
                if self._items:
                    deltas = self._next_batch_locked()
                    self._process_locked(deltas, process_single if len(deltas) == 1 else process_batch)
                    return
            self._wait(ctx)

    def replace(self, objs: Iterable[Any], resource_version: str) -> None:
        """Queue all objects of a list, which replaces everything before it."""
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
        """Queue a resync of the known objects.

        Objects with a queued delta are left out, because a resync with the stored version would revert the queued
        change.
        """
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
        """Record, at the first change only, how many deltas must be processed before the queue counts as synced."""
        if not self._populated:
            self._populated = True
            self._initial_population_count = initial_population_count
            self._check_synced_locked()

    def _check_synced_locked(self) -> None:
        if self._populated and self._initial_population_count == 0 and not self.has_synced():
            self._synced.close()

    def _add_to_items_locked(self, type_: DeltaType, obj: Any) -> None:
        self.key_of(obj)  # An object without a key is refused here, so every queued object has one.
        self._append_locked(Delta(type_, obj))

    def _append_locked(self, delta: Delta) -> None:
        self._items.append(delta)
        self._wake.try_send(None)

    def _wait(self, ctx: golang.Context | None) -> None:
        """Wait until pop may find something."""
        if self._closed:
            raise FIFOClosedError
        golang.select(self._wake, ctx.done() if ctx is not None else None)
        if ctx is not None:
            ctx.raise_if_done()

    def _next_batch_locked(self) -> Deltas:
        """Return the first deltas that can be processed together.

        Each delta is of a different object, and either all of them belong to the first list or none does.
        """
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
        """Process the deltas at the head of the queue, and remove them afterwards.

        The queue must not count as synced while the last deltas of the first list are being processed.
        """
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
        """Release the lock during processing, unless at least two batches are waiting.

        With a longer queue the lock stays held, so that threads that fill the queue wait for the thread that drains it.
        """
        if not self._unlock_while_processing or len(self._items) - count >= 2 * self._batch_size:
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    def _take_out_locked(self, count: int, kept: Collection[int] = ()) -> None:
        """Remove the first `count` deltas, except those whose indices are in `kept`."""
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
    """Return the queued and known objects that are missing in a list; raise ObjectKeyError on failure.

    For a queued object, its last delta decides whether it existed before the list.
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
