"""Keep objects up to date with a watch for each of them.

Go: pkg/kubelet/util/manager/watch_based_manager.go
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kubelet.util.manager.cache_based_manager import (
    CacheBasedManager,
    GetObjectFunc,
    ObjectKey,
    ObjectStore,
)
from kubelet.util.manager.manager import Manager, Store
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import fields, types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait
from pkg.client_go.tools import cache

T = TypeVar("T")

# The kubelet watches at most MAX_WATCHED_PER_POD objects of one kind for a pod, and at most MAX_WATCHED for all pods.
# Each watch needs one or two threads and a connection.
MAX_WATCHED_PER_POD = 100
MAX_WATCHED = 2048
# An unwatched object is cached for this time, in seconds.
UNWATCHED_TTL = 60.0

# The following times are in seconds.
_MIN_IDLE_TIME = 60.0
_RECYCLE_PERIOD = 60.0
# The kubelet reads objects of volumes once in each resync interval, so only objects of environment variables become
# this old.
_IDLE_RESYNC_INTERVALS = 5
# A read waits for a new watch for this time.
_SYNC_TIMEOUT = 1.0
# This is longer than a reflector's default, because there are many of these watches.
_MIN_WATCH_TIMEOUT = 1800.0


class Client(cache.ListerWatcher[T], Protocol[T]):
    """Define how to read the objects of a namespace; kubernetes.ResourceClient implements this."""

    def get(self, ctx: golang.Context, name: str, options: metav1.GetOptions | None = None) -> T: ...


class CacheStore(cache.Cache[T]):
    """Hold the object of a reflector, if there is one, and whether the API server has responded."""

    def __init__(self, on_appear: Callable[[], None]) -> None:
        """Create a store; the thread that adds a missed object calls on_appear."""
        super().__init__(cache.meta_namespace_key_func)
        self._on_appear = on_appear
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._initialized = False
        # The channel is closed when the store is initialized.
        self._synced: golang.Channel[None] = golang.Channel()
        self._missed = False

    def add(self, obj: T) -> None:
        super().add(obj)
        self._tell_if_missed()

    def replace(self, objs: Iterable[T], resource_version: str) -> None:
        super().replace(objs, resource_version)
        with self._lock:
            if not self._initialized:
                self._initialized = True
                self._synced.close()
        self._tell_if_missed()

    def miss(self) -> None:
        """Record that a read missed the object, so that its appearance is reported."""
        with self._lock:
            self._missed = True
        # The object may have appeared meanwhile.
        self._tell_if_missed()

    def _tell_if_missed(self) -> None:
        with self._lock:
            appeared = self._missed and self._initialized and bool(self.list_keys())
            if appeared:
                self._missed = False
        if appeared:
            self._on_appear()

    def has_synced(self) -> bool:
        with self._lock:
            return self._initialized

    def wait_until_synced(self, timeout: float) -> bool:
        """Report whether the store is synced, after a wait of at most `timeout` seconds."""
        with self._lock:
            synced = self._synced
        synced.recv(timeout)
        return self.has_synced()

    def unset_initialized(self) -> None:
        with self._lock:
            if self._initialized:
                self._initialized = False
                self._synced = golang.Channel()


class ObjectCacheItem(Generic[T]):
    """Hold an object, its reflector and its references. A watched object has a thread."""

    def __init__(
        self, ctx: golang.Context, store: CacheStore[T], reflector: cache.Reflector, watched_for: types.UID
    ) -> None:
        """Create an item; `watched_for` is the UID of the first pod that refers to the object."""
        self.store = store
        self.watched_for = watched_for
        # The keys are pod UIDs; the lock of the ObjectCache guards the references.
        self.references: Counter[types.UID] = Counter()
        self._ctx = ctx
        self._reflector = reflector
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._last_access_time: float | None = None
        self._immutable = False
        self._closed = False
        # The function stops the reflector; it is None if the reflector does not run.
        self._cancel: Callable[[], None] | None = None
        self._thread: golang.Thread | None = None
        try:
            self.restart_reflector_if_needed()
        except golang.ThreadError as err:
            # The next read of the object tries again.
            klog.error_s(err, "Failed to watch an object that a pod refers to")

    @property
    def stopped(self) -> bool:
        """Report whether the object has no watch."""
        with self._lock:
            return self._cancel is None

    def stop(self) -> bool:
        """Stop the watch, and report whether there was one."""
        with self._lock:
            return self._stop_locked()

    def close(self) -> None:
        """Stop the watch permanently.

        DIVERGES (fault of Go): a read of a config map or secret starts no watch after the last pod's reference was
        removed.
        Go: pkg/kubelet/util/manager/watch_based_manager.go, (*objectCache).Get: it may start one.
        Why: no code would stop that watch.
        Test: watch_based_manager_test.py:test_who_asked_before_the_last_reference_went_begins_no_watch
        """
        with self._lock:
            self._closed = True
            self._stop_locked()

    def _stop_locked(self) -> bool:
        if self._cancel is None:
            return False
        self._cancel()
        self._cancel = None
        return True

    def set_last_access_time(self, time: float) -> None:
        with self._lock:
            self._last_access_time = time

    def set_immutable(self) -> None:
        with self._lock:
            self._immutable = True

    def stop_if_idle(self, now: float, max_idle_time: float) -> bool:
        """Stop the watch if the object was not read for `max_idle_time` seconds; report whether it was stopped."""
        with self._lock:
            # Do not interrupt a list that a busy API server is working on; it would have to start again.
            if not self.store.has_synced():
                return False
            last = self._last_access_time
            return (last is None or now > last + max_idle_time) and self._stop_locked()

    def restart_reflector_if_needed(self) -> None:
        """Start the watch, unless the object is watched, is immutable, or is no longer needed.

        Raise golang.ThreadError; the next call tries again.
        """
        with self._lock:
            if self._immutable or self._closed or self._cancel is not None or self._ctx.err() is not None:
                return
            # DIVERGES (fault of Go): the result of an earlier watch of a config map or secret becomes stale when the
            # next watch starts.
            # Go: pkg/kubelet/util/manager/watch_based_manager.go, (*objectCacheItem).stopThreadUnsafe: it becomes stale
            # when the earlier watch is told to stop.
            # Why: what the earlier watch still writes while it stops would count as fresh.
            # Test: watch_based_manager_test.py:test_what_a_watch_writes_as_it_ends_is_old
            self.store.unset_initialized()
            ctx, cancel = golang.with_cancel(self._ctx)
            try:
                self._thread = golang.go(self._start_reflector, ctx, self._thread, name=self._reflector.name)
            except golang.ThreadError:
                cancel()
                raise
            self._cancel = cancel

    def _start_reflector(self, ctx: golang.Context, previous: golang.Thread | None) -> None:
        if previous is not None:
            previous.join()
        self._reflector.run(ctx)


class ObjectCache(Generic[T]):
    """Store objects with a watch for each, because a node may read only the objects that its pods refer to.

    DIVERGES (platform): the kubelet does not watch config maps and secrets beyond MAX_WATCHED_PER_POD or MAX_WATCHED.
    It reads them when a pod needs them, and caches them for a minute.
    Go: pkg/kubelet/util/manager/watch_based_manager.go, (*objectCache).AddReference: the Go kubelet watches all
    objects.
    Why: each watch needs a thread, and a pod that refers to thousands of objects would use up all threads.
    Test: watch_based_manager_test.py:test_what_a_pod_refers_to_beyond_a_number_is_not_watched,
    watch_based_manager_test.py:test_what_all_pods_refer_to_beyond_a_number_is_not_watched
    """

    def __init__(
        self,
        ctx: golang.Context,
        client: Callable[[str], cache.ListerWatcher[T]],
        object_type: type[T],
        is_immutable: Callable[[T], bool],
        group_resource: str,
        clock: clock_.Clock,
        max_idle_time: float,
        on_appear: Callable[[Collection[types.UID]], None],
        get_object: GetObjectFunc[T],
    ) -> None:
        """Create a cache; `client` lists and watches a namespace. All watches end with ctx.

        The cache stops the watch of an object that was not read for max_idle_time seconds (at least a minute); the next
        read starts a watch again. When an object appears that an earlier read missed, on_appear gets the UIDs of the
        pods that refer to it.

        DIVERGES (safer): the kubelet syncs pods that wait for a missing config map or secret as soon as it appears.
        Go: pkg/kubelet/util/manager/watch_based_manager.go, (*objectCache).Get: the Go kubelet does not notify the
        pods.
        Why: otherwise such a pod would start up to two minutes later, at its next attempt.
        Test: watch_based_manager_test.py:test_who_has_asked_in_vain_is_told_once
        """
        self._ctx = ctx
        self._client = client
        self._object_type = object_type
        self._is_immutable = is_immutable
        self._group_resource = group_resource
        self._clock = clock
        self._max_idle_time = max(max_idle_time, _MIN_IDLE_TIME)
        self._on_appear = on_appear
        self._unwatched = ObjectStore(get_object, clock, lambda: None, UNWATCHED_TTL)
        self._lock = threading.Lock()  # The lock guards _items, the references of each item, and _watched_for.
        self._items: dict[ObjectKey, ObjectCacheItem[T]] = {}
        # The dict counts watches by the UID of the pod for which each was started.
        self._watched_for: Counter[types.UID] = Counter()
        name = f"{group_resource}-cache-recycle"
        golang.go(wait.until, self.start_recycle_idle_watch, _RECYCLE_PERIOD, ctx, clock, name=name)

    def item(self, namespace: str, name: str) -> ObjectCacheItem[T] | None:
        with self._lock:
            return self._items.get(ObjectKey(namespace, name))

    def add_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        key = ObjectKey(namespace, name)
        with self._lock:
            if key not in self._items:
                if len(self._items) >= MAX_WATCHED or self._watched_for[referenced_from] >= MAX_WATCHED_PER_POD:
                    self._unwatched.add_reference(namespace, name, referenced_from)
                    return
                self._items[key] = self._new_item(key, referenced_from)
                self._watched_for[referenced_from] += 1
            self._items[key].references[referenced_from] += 1

    def _new_item(self, key: ObjectKey, watched_for: types.UID) -> ObjectCacheItem[T]:
        selector = str(fields.selector_from_set({"metadata.name": key.name}))
        store: CacheStore[T] = CacheStore(lambda: self._appeared(key))
        reflector = cache.Reflector(
            cache.new_list_watch_from_client(self._client(key.namespace), selector),
            self._object_type,
            store,
            name=f'object-"{key.namespace}"/"{key.name}"',
            min_watch_timeout=_MIN_WATCH_TIMEOUT,
        )
        return ObjectCacheItem(self._ctx, store, reflector, watched_for)

    def _appeared(self, key: ObjectKey) -> None:
        with self._lock:
            item = self._items.get(key)
            pods = list(item.references) if item is not None else []
        self._on_appear(pods)

    def delete_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        key = ObjectKey(namespace, name)
        with self._lock:
            item = self._items.get(key)
            if item is None or referenced_from not in item.references:
                self._unwatched.delete_reference(namespace, name, referenced_from)
                return
            item.references -= Counter({referenced_from: 1})
            if not item.references:
                item.close()
                del self._items[key]
                self._watched_for -= Counter({item.watched_for: 1})

    def get(self, namespace: str, name: str) -> T:
        item = self.item(namespace, name)
        if item is None:
            return self._unwatched.get(namespace, name)
        # Set the time in every case: the idle check must not stop the watch while a read waits for it.
        item.set_last_access_time(self._clock.monotonic())
        item.restart_reflector_if_needed()
        if not item.store.wait_until_synced(_SYNC_TIMEOUT):
            item.store.miss()
            raise TimeoutError(f"failed to sync {self._group_resource} cache: timed out waiting for the condition")
        obj = item.store.get_by_key(f"{namespace}/{name}")
        if obj is None:
            item.store.miss()
            raise apierrors.new_not_found(self._group_resource, name)
        if self._is_immutable(obj):
            item.set_immutable()
            if item.stop():
                ref = klog.kref(namespace, name)
                klog.v(4).info_s("Stopped watching for changes - object is immutable", obj=ref)
        return obj

    def start_recycle_idle_watch(self) -> None:
        """Stop the watches of objects that were not read for a long time; the next read starts a new one."""
        now = self._clock.monotonic()
        with self._lock:
            idle = [key for key, item in self._items.items() if item.stop_if_idle(now, self._max_idle_time)]
        for key in idle:
            klog.v(4).info_s(
                "Not acquired for long time, Stopped watching for changes",
                objectKey=klog.kref(key.namespace, key.name),
                maxIdleTime=self._max_idle_time,
            )


def new_watch_based_manager(
    ctx: golang.Context,
    client: Callable[[str], Client[T]],
    object_type: type[T],
    is_immutable: Callable[[T], bool],
    group_resource: str,
    resync_interval: float,
    get_referenced_objects: Callable[[v1.Pod], Set[str]],
    clock: clock_.Clock,
    on_appear: Callable[[Collection[types.UID]], None],
) -> CacheBasedManager[T]:
    """Return a manager that watches the objects of registered pods until ctx ends."""
    idle = resync_interval * _IDLE_RESYNC_INTERVALS

    def get_object(namespace: str, name: str, options: metav1.GetOptions) -> T:
        return client(namespace).get(ctx, name, options)

    object_store = ObjectCache(
        ctx, client, object_type, is_immutable, group_resource, clock, idle, on_appear, get_object
    )
    return CacheBasedManager(object_store, get_referenced_objects)


if TYPE_CHECKING:

    def _conform(store: ObjectCache[T], manager: CacheBasedManager[T]) -> tuple[Store[T], Manager[T]]:
        return store, manager
