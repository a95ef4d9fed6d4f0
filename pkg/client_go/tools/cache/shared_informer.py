"""Share one copy of the API server's objects of a kind among any number of readers and handlers.

Go: k8s.io/client-go/tools/cache/shared_informer.go

The informer's own thread (run) takes changes from the queue, applies them to the store and passes notifications on. The
reflector's thread fills the queue. Each handler has a thread that calls it. The queue between the informer and a
handler is unbounded, so a slow handler delays only itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pkg import golang, klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import wait
from pkg.client_go.tools.cache.controller import (
    Config,
    Controller,
    ResourceEventHandler,
    new_queue_fifo,
    process_deltas,
    process_deltas_in_batch,
)
from pkg.client_go.tools.cache.delta_fifo import Deltas, deletion_handling_meta_namespace_key_func
from pkg.client_go.tools.cache.index import Indexers
from pkg.client_go.tools.cache.listwatch import ListerWatcher
from pkg.client_go.tools.cache.reflector import WatchErrorHandler
from pkg.client_go.tools.cache.store import Indexer, Store, new_indexer
from pkg.client_go.tools.cache.the_real_fifo import RealFIFO

T = TypeVar("T")

InformerSynced = Callable[[], bool]
"""An InformerSynced function reports whether an informer, or anything similar, has all its objects."""

# `_SYNCED_POLL_PERIOD` is the interval, in seconds, at which wait_for_cache_sync polls the functions.
_SYNCED_POLL_PERIOD = 0.1

_MINIMUM_RESYNC_PERIOD = 1.0


class InformerStateError(RuntimeError):
    """Signal that the call is not allowed because the informer has already started or stopped."""


class DoneChecker(Protocol):
    """Define an object that finishes once, and for which callers can wait."""

    def done(self) -> golang.Channel[None]:
        """Return a channel that is closed when the object has finished."""
        ...


def wait_for_cache_sync(ctx: golang.Context, *cache_syncs: InformerSynced) -> bool:
    """Wait until all functions return True; return False if ctx is done first."""
    try:
        wait.poll_until_context_cancel(ctx, _SYNCED_POLL_PERIOD, True, lambda: all(synced() for synced in cache_syncs))
    except golang.ContextError:
        return False
    return True


def wait_for(ctx: golang.Context, *checkers: DoneChecker) -> bool:
    """Wait, without polling, until all checkers are done; return False if ctx is done first."""
    for checker in checkers:
        golang.select(checker.done(), ctx.done())
        if not checker.done().try_recv()[2]:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Add:
    new_obj: Any
    is_in_initial_list: bool


@dataclass(frozen=True, slots=True)
class _Update:
    old_obj: Any
    new_obj: Any


@dataclass(frozen=True, slots=True)
class _Delete:
    old_obj: Any


_Notification = _Add | _Update | _Delete


class ResourceEventHandlerRegistration(Protocol):
    """Represent a handler that is registered with an informer."""

    def has_synced(self) -> bool:
        """Report whether the handler has received every object of the first list."""
        ...


class SharedIndexInformer(Generic[T]):
    """Keep a store of a ListerWatcher's objects, and notify handlers of changes.

    All methods are thread-safe. The store applies changes in the server's order, across all objects. It can skip
    states: a list leaves out what happened since the previous event, and one transaction can apply several changes.
    Handlers receive a change after the store has it.
    """

    def __init__(
        self,
        lister_watcher: ListerWatcher[T],
        object_type: type[T],
        resync_period: float = 0.0,
        indexers: Indexers | None = None,
        clock: clock_.Clock | None = None,
    ) -> None:
        """Prepare an informer; run starts it.

        Without a resync period (in seconds) there are no resyncs, unless a handler asks for them before the start.
        """
        self._lister_watcher = lister_watcher
        self._object_type = object_type
        self._clock: clock_.Clock = clock or clock_.RealClock()
        self._indexer: Indexer[T] = new_indexer(deletion_handling_meta_namespace_key_func, indexers or {})
        self._queue = new_queue_fifo(self._indexer)
        self._processor = _SharedProcessor(object_type.__name__, self._clock)
        # This lock guards the fields below. A thread that needs both locks takes it before _block_deltas.
        self._started_lock = threading.Lock()
        self._started = False
        self._stopped = False
        self._controller: Controller | None = None
        self._resync_check_period = resync_period
        self._default_resync_period = resync_period
        self._watch_error_handler: WatchErrorHandler | None = None
        # This lock is held while a change goes to the store and to the handlers, so a new handler joins between two
        # changes.
        self._block_deltas = threading.Lock()

    def run(self, ctx: golang.Context) -> None:
        """Follow the server until ctx is done; an informer can run only once."""
        with self._started_lock:
            if self._started:
                klog.warning_s("The sharedIndexInformer has started, run more than once is not allowed")
                return
            self._started = True
            self._controller = controller = self._new_controller_locked()
        try:
            self._processor.start(ctx)
            controller.run(ctx)
        finally:
            with self._started_lock:
                self._stopped = True
            self._processor.stop()

    def has_synced(self) -> bool:
        """Report whether the store has every object of the first list.

        Handlers may not have been notified of all of them yet.
        """
        return self._queue.has_synced()

    def done(self) -> golang.Channel[None]:
        """Return the channel that is closed once has_synced returns True."""
        return self._queue.done()

    def is_stopped(self) -> bool:
        with self._started_lock:
            return self._stopped

    def last_sync_resource_version(self) -> str:
        """Return the resource version of the newest change in the queue, or "" before the first list."""
        with self._started_lock:
            return self._controller.last_sync_resource_version() if self._controller is not None else ""

    def get_store(self) -> Store[T]:
        return self._indexer

    def get_indexer(self) -> Indexer[T]:
        return self._indexer

    def add_indexers(self, indexers: Indexers) -> None:
        """Add index functions.

        Raise ValueError if a name is already in use, and InformerStateError once the informer has stopped.
        """
        with self._started_lock:
            if self._stopped:
                raise InformerStateError("indexer was not added because it has stopped already")
            self._indexer.add_indexers(indexers)

    def set_watch_error_handler(self, handler: WatchErrorHandler) -> None:
        """Call the handler for errors of lists and watches; raise InformerStateError once the informer has started."""
        with self._started_lock:
            if self._started:
                raise InformerStateError("informer has already started")
            self._watch_error_handler = handler

    def add_event_handler(
        self, handler: ResourceEventHandler, resync_period: float | None = None
    ) -> ResourceEventHandlerRegistration:
        """Notify a handler of every change from now on, starting with the existing objects as additions.

        With a resync period (in seconds; None means the informer's, 0 means never) the handler receives each object
        again at that interval, as an update. Raise InformerStateError once the informer has stopped, and
        golang.ThreadError if no thread can start.
        """
        with self._started_lock:
            if self._stopped:
                raise InformerStateError("handler was not added to shared informer because it has stopped already")
            listener = self._new_listener_locked(handler, resync_period)
            if not self._started:
                self._processor.add_listener(listener)
                return listener
            with self._block_deltas:
                for obj in self._indexer.list():
                    listener.add(_Add(obj, is_in_initial_list=True))
                self._processor.add_listener(listener)
            return listener

    def remove_event_handler(self, registration: ResourceEventHandlerRegistration) -> None:
        """Send a handler no further notifications; a call may still be in progress.

        Do nothing for a handler that was removed before.
        """
        with self._started_lock, self._block_deltas:
            self._processor.remove_listener(registration)

    # The next three methods are the ResourceEventHandler that process_deltas notifies while _block_deltas is held.

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None:
        self._processor.distribute(_Add(obj, is_in_initial_list), sync=False)

    def on_update(self, old_obj: Any, new_obj: Any) -> None:
        # The resource version is the same, so this is a resync: only the listeners that asked for one receive it.
        sync = old_obj.metadata.resource_version == new_obj.metadata.resource_version
        self._processor.distribute(_Update(old_obj, new_obj), sync)

    def on_delete(self, obj: Any) -> None:
        self._processor.distribute(_Delete(obj), sync=False)

    def _new_controller_locked(self) -> Controller:
        return Controller(
            Config(
                queue=self._queue,
                lister_watcher=self._lister_watcher,
                process=self._handle_deltas,
                process_batch=self._handle_batch_deltas,
                object_type=self._object_type,
                full_resync_period=self._resync_check_period,
                should_resync=self._processor.should_resync,
                watch_error_handler=self._watch_error_handler,
                clock=self._clock,
            )
        )

    def _handle_deltas(self, deltas: Deltas, is_in_initial_list: bool) -> None:
        with self._block_deltas:
            process_deltas(self, self._indexer, deltas, is_in_initial_list)

    def _handle_batch_deltas(self, deltas: Deltas, is_in_initial_list: bool) -> None:
        with self._block_deltas:
            process_deltas_in_batch(self, self._indexer, deltas, is_in_initial_list)

    def _new_listener_locked(self, handler: ResourceEventHandler, resync_period: float | None) -> _ProcessorListener:
        requested = self._default_resync_period if resync_period is None else resync_period
        if requested > 0:
            requested = self._fit_resync_period_locked(requested)
        effective = _determine_resync_period(requested, self._resync_check_period)
        return _ProcessorListener(handler, requested, effective, self._clock.monotonic(), self._queue)

    def _fit_resync_period_locked(self, period: float) -> float:
        """Return a resync period that the informer supports.

        Before the start the informer adapts its own period; afterwards the handler's period is raised to the
        informer's.
        """
        if period < _MINIMUM_RESYNC_PERIOD:
            klog.warning_s(
                "Resync period is too small. Changing it to the minimum allowed value",
                resyncPeriod=period,
                minimumResyncPeriod=_MINIMUM_RESYNC_PERIOD,
            )
            period = _MINIMUM_RESYNC_PERIOD
        if period >= self._resync_check_period:
            return period
        if self._started:
            klog.warning_s(
                "Resync period is smaller than resync check period and the informer has already started. "
                "Changing it to the resync check period",
                resyncPeriod=period,
                resyncCheckPeriod=self._resync_check_period,
            )
            return self._resync_check_period
        self._resync_check_period = period
        self._processor.resync_check_period_changed(period)
        return period


def _determine_resync_period(desired: float, check: float) -> float:
    """Return the resync period of a listener if the informer checks for resyncs every `check` seconds."""
    if desired == 0:
        return 0.0
    if check == 0:
        klog.warning_s(
            "The specified resyncPeriod is invalid because this shared informer doesn't support resyncing",
            desired=desired,
        )
        return 0.0
    return max(desired, check)


class _SharedProcessor:
    """Hold an informer's listeners.

    The value of each listener says whether it takes part in the current resync.
    """

    def __init__(self, name: str, clock: clock_.Clock) -> None:
        self._thread_name = f"informer-handler-{name}"
        self._clock = clock
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._started = False
        self._listeners: dict[_ProcessorListener, bool] = {}
        self._threads: list[golang.Thread] = []

    def start(self, ctx: golang.Context) -> None:
        """Start to deliver notifications, including those that are already queued; return early once ctx is done."""
        with self._lock:
            self._started = True
            waiting = list(self._listeners)
        for listener in waiting:
            thread = wait.go(ctx, listener.run, name=self._thread_name, clock=self._clock)
            with self._lock:
                self._threads += [thread] if thread is not None else []

    def stop(self) -> None:
        """Drop the undelivered notifications, and wait until the handlers return."""
        with self._lock:
            for listener in self._listeners:
                listener.stop()
            self._listeners = {}
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()

    def add_listener(self, listener: _ProcessorListener) -> None:
        """Add a listener; raise golang.ThreadError, without adding it, if its thread cannot start."""
        with self._lock:
            if self._started:
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                self._threads.append(golang.go(listener.run, name=self._thread_name))
            self._listeners[listener] = True

    def remove_listener(self, registration: ResourceEventHandlerRegistration) -> None:
        with self._lock:
            if isinstance(registration, _ProcessorListener) and self._listeners.pop(registration, None) is not None:
                registration.stop()

    def distribute(self, notification: _Notification, sync: bool) -> None:
        """Queue the notification for every listener, or, for a resync, only for the listeners that take part."""
        with self._lock:
            for listener, is_syncing in self._listeners.items():
                if is_syncing or not sync:
                    listener.add(notification)

    def should_resync(self) -> bool:
        """Report whether a resync is due for any listener, and mark the listeners for which it is due."""
        now = self._clock.monotonic()
        with self._lock:
            for listener in self._listeners:
                self._listeners[listener] = due = listener.should_resync(now)
                if due:
                    listener.determine_next_resync(now)
            return any(self._listeners.values())

    def resync_check_period_changed(self, resync_check_period: float) -> None:
        with self._lock:
            for listener in self._listeners:
                listener.resync_period = _determine_resync_period(listener.requested_resync_period, resync_check_period)


class _ProcessorListener:
    """Call one handler with the added notifications, in order.

    The processor's lock guards the resync fields.
    """

    def __init__(
        self,
        handler: ResourceEventHandler,
        requested_resync_period: float,
        resync_period: float,
        now: float,
        upstream: RealFIFO,
    ) -> None:
        self.requested_resync_period = requested_resync_period
        self.resync_period = resync_period
        self.determine_next_resync(now)
        self._handler = handler
        self._upstream = upstream
        self._pending: golang.Channel[_Notification] = golang.Channel(sys.maxsize)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        # `_initial` is the number of initial objects that the handler has not processed yet; _lock guards it.
        self._initial = 0

    def has_synced(self) -> bool:
        # The order of these two checks matters: once the informer has synced, no further initial object is added.
        if not self._upstream.has_synced():
            return False
        with self._lock:
            return self._initial == 0

    def add(self, notification: _Notification) -> None:
        """Queue a notification without blocking."""
        if isinstance(notification, _Add) and notification.is_in_initial_list:
            with self._lock:
                self._initial += 1
        self._pending.try_send(notification)

    def stop(self) -> None:
        """End run and drop the pending notifications; call this only once."""
        self._stopped.set()
        self._pending.close()

    def run(self) -> None:
        for notification in self._pending:
            if self._stopped.is_set():
                return
            self._notify(notification)

    def should_resync(self, now: float) -> bool:
        return self.resync_period != 0 and now >= self._next_resync

    def determine_next_resync(self, now: float) -> None:
        self._next_resync = now + self.resync_period

    def _notify(self, notification: _Notification) -> None:
        """Call the handler for one notification.

        DIVERGES (safer): the kubelet logs the exception of a handler, and calls the handler for the next change at
        once.
        Go: k8s.io/client-go/tools/cache/shared_informer.go, (*processorListener).run: the panic of a handler ends the
        process.
        Why: one object that a handler did not expect must not end the kubelet.
        Test: shared_informer_test.py:test_a_handler_that_fails_hears_of_the_next
        """
        try:
            match notification:
                case _Update(old_obj, new_obj):
                    self._handler.on_update(old_obj, new_obj)
                case _Add(new_obj, is_in_initial_list):
                    self._handler.on_add(new_obj, is_in_initial_list)
                case _Delete(old_obj):
                    self._handler.on_delete(old_obj)
        except Exception as err:
            # A handler may raise anything; see the docstring.
            klog.error_s(err, "Observed a panic", stacktrace=klog.stacktrace(err))
        finally:
            if isinstance(notification, _Add) and notification.is_in_initial_list:
                with self._lock:
                    self._initial -= 1
