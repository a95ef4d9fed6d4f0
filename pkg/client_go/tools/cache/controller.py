"""Moves what a reflector queues to whoever processes it, and the handlers that hear of it in the end.

Go: k8s.io/client-go/tools/cache/controller.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pkg import golang, klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import wait
from pkg.client_go.tools.cache.delta_fifo import (
    DeletedFinalStateUnknown,
    DeltaFIFO,
    Deltas,
    DeltaType,
    PopProcessFunc,
)
from pkg.client_go.tools.cache.fifo import FIFOClosedError
from pkg.client_go.tools.cache.listwatch import ListerWatcher
from pkg.client_go.tools.cache.reflector import Reflector, WatchErrorHandler
from pkg.client_go.tools.cache.store import Store

T = TypeVar("T")

# Seconds until it is tried again to process an object for which there was no memory.
_RETRY_PERIOD = 1.0


@dataclass
class Config:
    """What a controller connects."""

    queue: DeltaFIFO
    lister_watcher: ListerWatcher[Any]
    process: PopProcessFunc
    """Is called with the deltas of one object at a time, under the queue's lock."""
    object_type: type | None = None
    full_resync_period: float = 0.0
    """Seconds between two calls of should_resync; 0: none."""
    should_resync: Callable[[], bool] | None = None
    watch_error_handler: WatchErrorHandler | None = None
    clock: clock_.Clock | None = None


class Controller:
    """A reflector that fills a queue, and a loop that drains it."""

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
        """Reflect, in a thread of its own, and process, in this one, until ctx is done. Once only."""
        reflector = self._reflector
        reflecting = wait.go(ctx, reflector.run, ctx, name=reflector.name, clock=self._config.clock)
        self._process_loop(ctx)
        self._config.queue.close()
        if reflecting is not None:
            reflecting.join()

    def has_synced(self) -> bool:
        """Whether all objects of the first list were processed."""
        return self._config.queue.has_synced()

    def last_sync_resource_version(self) -> str:
        return self._reflector.last_sync_resource_version

    def _process_loop(self, ctx: golang.Context) -> None:
        while True:
            try:
                self._config.queue.pop(self._config.process, ctx)
            except FIFOClosedError:
                return
            except MemoryError as err:
                klog.error_s(err, "Unable to process deltas, will retry", stacktrace=klog.stacktrace(err))
                wait.sleep(ctx, _RETRY_PERIOD, self._config.clock)
            except Exception as err:
                if ctx.err() is not None:
                    return
                # One object that cannot be processed must not keep the others from it.
                klog.error_s(err, "Unable to process deltas", stacktrace=klog.stacktrace(err))


class ResourceEventHandler(Protocol):
    """Hears of changes to the objects of an informer, one call at a time. Must not change the objects."""

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None: ...

    def on_update(self, old_obj: Any, new_obj: Any) -> None:
        """Also called, with no change, when it is time to sync again."""
        ...

    def on_delete(self, obj: Any) -> None:
        """The object as it was last, or DeletedFinalStateUnknown if the deletion itself was missed."""
        ...


@dataclass(frozen=True)
class ResourceEventHandlerFuncs(Generic[T]):
    """A ResourceEventHandler of those functions that are given."""

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
    """Bring the deltas of one object into the store, and tell the handler of each."""
    for delta in deltas:
        obj = delta.object
        if delta.type is DeltaType.DELETED:
            client_state.delete(obj)
            handler.on_delete(obj)
        elif (old := client_state.get(obj)) is not None:
            client_state.update(obj)
            handler.on_update(old, obj)
        else:
            client_state.add(obj)
            handler.on_add(obj, is_in_initial_list)
