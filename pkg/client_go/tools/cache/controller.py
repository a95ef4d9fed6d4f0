"""Move changes from a reflector's queue to the store and to the event handlers.

Go: k8s.io/client-go/tools/cache/controller.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from pkg import features, golang, klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.tools.cache.delta_fifo import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    deletion_handling_meta_namespace_key_func,
)
from pkg.client_go.tools.cache.fifo import FIFOClosedError, PopProcessFunc, ProcessBatchFunc
from pkg.client_go.tools.cache.listwatch import ListerWatcher
from pkg.client_go.tools.cache.reflector import Reflector, WatchErrorHandler
from pkg.client_go.tools.cache.store import (
    KeyListerGetter,
    Store,
    TransactionError,
    TransactionStore,
    meta_namespace_key_func,
)
from pkg.client_go.tools.cache.the_real_fifo import RealFIFO, ReplacedAllInfo, reconcile_replacement
from pkg.client_go.tools.cache.thread_safe_store import Transaction, TransactionType

T = TypeVar("T")

# `_RETRY_PERIOD` is the delay, in seconds, before the controller retries a delta for which there was no memory.
_RETRY_PERIOD = 1.0


@dataclass
class Config:
    """Describe what a controller connects."""

    queue: RealFIFO
    lister_watcher: ListerWatcher[Any]
    process: PopProcessFunc
    """The controller calls this function with one delta at a time."""
    process_batch: ProcessBatchFunc | None = None
    """The controller calls this function with several deltas, each of a different object.

    The gate InOrderInformersBatchProcess must be on.
    """
    object_type: type | None = None
    full_resync_period: float = 0.0
    """`full_resync_period` is the time, in seconds, between two calls of should_resync; 0 means never."""
    should_resync: Callable[[], bool] | None = None
    watch_error_handler: WatchErrorHandler | None = None
    clock: clock_.Clock | None = None


class Controller:
    """Run a reflector that fills a queue, and a loop that drains the queue."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._reflector = Reflector(
            config.lister_watcher,
            config.object_type,
            config.queue,
            config.full_resync_period,
            clock=config.clock,
        )
        if config.should_resync is not None:
            self._reflector.should_resync = config.should_resync
        if config.watch_error_handler is not None:
            self._reflector.watch_error_handler = config.watch_error_handler

    def run(self, ctx: golang.Context) -> None:
        """Run the reflector in a new thread and the processing loop in this one, until ctx is done.

        A controller can run only once.
        """
        reflector = self._reflector
        reflecting = wait.go(ctx, reflector.run, ctx, name=reflector.name, clock=self._config.clock)
        self._process_loop(ctx)
        self._config.queue.close()
        if reflecting is not None:
            reflecting.join()

    def has_synced(self) -> bool:
        """Report whether all objects of the first list were processed."""
        return self._config.queue.has_synced()

    def last_sync_resource_version(self) -> str:
        return self._reflector.last_sync_resource_version

    def _process_loop(self, ctx: golang.Context) -> None:
        queue, process, process_batch = self._config.queue, self._config.process, self._config.process_batch
        if not features.feature_gate.enabled(features.IN_ORDER_INFORMERS_BATCH_PROCESS):
            process_batch = None
        while True:
            try:
                if process_batch is not None:
                    queue.pop_batch(process_batch, process, ctx)
                else:
                    queue.pop(process, ctx)
            except FIFOClosedError:
                return
            except MemoryError as err:
                klog.error_s(err, "Unable to process deltas, will retry", stacktrace=klog.stacktrace(err))
                wait.sleep(ctx, _RETRY_PERIOD, self._config.clock)
            except Exception as err:
                # One object that cannot be processed must not block the others.
                if ctx.err() is not None:
                    return
                klog.error_s(err, "Unable to process deltas", stacktrace=klog.stacktrace(err))


class ResourceEventHandler(Protocol):
    """Define what an informer calls when its objects change.

    The informer makes one call at a time. A handler must not change the objects.
    """

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None: ...

    def on_update(self, old_obj: Any, new_obj: Any) -> None:
        """Handle a changed object, or, at a resync, an unchanged one."""
        ...

    def on_delete(self, obj: Any) -> None:
        """Handle the deletion of `obj`, the last known version of the object.

        If the informer missed the DELETED event, `obj` is a DeletedFinalStateUnknown.
        """
        ...


@dataclass(frozen=True)
class ResourceEventHandlerFuncs(Generic[T]):
    """Handle events with those functions that are not None."""

    add_func: Callable[[T], object] | None = None
    update_func: Callable[[T, T], object] | None = None
    delete_func: Callable[[T | DeletedFinalStateUnknown], object] | None = None

    def on_add(self, obj: T, is_in_initial_list: bool) -> None:
        if self.add_func is not None:
            self.add_func(obj)

    def on_update(self, old_obj: T, new_obj: T) -> None:
        if self.update_func is not None:
            self.update_func(old_obj, new_obj)

    def on_delete(self, obj: T | DeletedFinalStateUnknown) -> None:
        if self.delete_func is not None:
            self.delete_func(obj)


def process_deltas(
    handler: ResourceEventHandler, client_state: Store[Any], deltas: Deltas, is_in_initial_list: bool
) -> None:
    """Apply the deltas to the store one after the other, and notify the handler of each."""
    for delta in deltas:
        obj = delta.object
        if delta.type is DeltaType.REPLACED_ALL:
            _process_replaced_all_info(handler, obj, client_state, is_in_initial_list)
        elif delta.type is DeltaType.SYNC_ALL:
            _tell(partial(handler.on_update, obj, obj) for obj in client_state.list())
        elif delta.type is DeltaType.DELETED:
            client_state.delete(obj)
            handler.on_delete(obj)
        elif (old := client_state.get(obj)) is not None:
            client_state.update(obj)
            handler.on_update(old, obj)
        else:
            client_state.add(obj)
            handler.on_add(obj, is_in_initial_list)


def process_deltas_in_batch(
    handler: ResourceEventHandler, client_state: TransactionStore[Any], deltas: Deltas, is_in_initial_list: bool
) -> None:
    """Apply deltas of different objects to the store in one transaction, and then notify the handler of each.

    Raise TransactionError for the deltas that the store refuses, after the handler was notified of the others.
    """
    prepared = [_prepare(handler, client_state, delta, is_in_initial_list) for delta in deltas]
    try:
        client_state.transaction(*(txn for txn, _ in prepared))
    except TransactionError as err:
        _tell(prepared[index][1] for index in err.successful_indices)
        raise
    _tell(callback for _, callback in prepared)


def _prepare(
    handler: ResourceEventHandler, client_state: Store[Any], delta: Delta, is_in_initial_list: bool
) -> tuple[Transaction, Callable[[], None]]:
    """Return the store's change for a delta, and the call that notifies the handler."""
    obj = delta.object
    if delta.type is DeltaType.DELETED:
        return Transaction(TransactionType.DELETE, obj), partial(handler.on_delete, obj)
    if (old := client_state.get(obj)) is not None:
        return Transaction(TransactionType.UPDATE, obj), partial(handler.on_update, old, obj)
    return Transaction(TransactionType.ADD, obj), partial(handler.on_add, obj, is_in_initial_list)


def _process_replaced_all_info(
    handler: ResourceEventHandler, info: ReplacedAllInfo, client_state: Store[Any], is_in_initial_list: bool
) -> None:
    """Replace the whole store with a list, and notify the handler, of deletions first.

    The function collects all notifications before it changes the store. If there is not enough memory, the caller can
    therefore try again.
    """
    deletions = reconcile_replacement([], client_state, info.objects, deletion_handling_meta_namespace_key_func)
    callbacks: list[Callable[[], None]] = [partial(handler.on_delete, gone) for gone in deletions]
    for obj in info.objects:
        if (old := client_state.get(obj)) is not None:
            callbacks.append(partial(handler.on_update, old, obj))
        else:
            callbacks.append(partial(handler.on_add, obj, is_in_initial_list))
    client_state.replace(info.objects, info.resource_version)
    _tell(callbacks)


def _tell(callbacks: Iterable[Callable[[], None]]) -> None:
    """Make each call, even if another one fails, because the store has already changed."""
    for callback in callbacks:
        with contain("Failed to notify a handler of a change"):
            callback()


def new_queue_fifo(client_state: KeyListerGetter[Any]) -> RealFIFO:
    """Return the queue for an informer that stores its objects in client_state.

    Feature gates decide how the queue works.
    """
    atomic_events = features.feature_gate.enabled(features.ATOMIC_FIFO)
    unlock = atomic_events and features.feature_gate.enabled(features.UNLOCK_WHILE_PROCESSING_FIFO)
    return RealFIFO(client_state, meta_namespace_key_func, atomic_events, unlock)
