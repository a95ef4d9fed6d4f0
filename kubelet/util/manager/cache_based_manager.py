"""Fetch objects on demand if the cached ones are too old, and record the pods that refer to them.

Go: pkg/kubelet/util/manager/cache_based_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kubelet import util
from kubelet.util.manager.manager import Manager, Store
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.golang import strconv

T = TypeVar("T")

GetObjectTTLFunc = Callable[[], float | None]
"""A GetObjectTTLFunc returns the TTL of objects in seconds, or None if it is not set."""

GetObjectFunc = Callable[[str, str, metav1.GetOptions], T]
"""A GetObjectFunc gets an object from the API server by namespace and name."""


class ObjectKey(NamedTuple):
    namespace: str
    name: str
    uid: types.UID = types.UID("")


class NotRegisteredError(LookupError):
    """Signal that no registered pod refers to the object."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f'object "{namespace}"/"{name}" not registered')


@dataclass(slots=True)
class _ObjectData(Generic[T]):
    # The lock is held during a fetch, so that other callers for the same object wait for its result.
    lock: threading.Lock = field(default_factory=threading.Lock)
    object: T | None = None
    # `missing` is the API server's response for an object that does not exist. The error itself is not kept: a raised
    # error keeps alive the frames of its callers, and with them data such as a volume's files.
    missing: metav1.Status | None = None
    # The time is on the steady clock; it is None before the first fetch.
    last_update_time: float | None = None


@dataclass(slots=True)
class _ObjectStoreItem(Generic[T]):
    ref_count: int = 0
    # None requests a fetch, whatever the age of the earlier object.
    data: _ObjectData[T] | None = None


class ObjectStore(Generic[T]):
    """Store objects, and fetch one again when it is older than its TTL."""

    def __init__(
        self, get_object: GetObjectFunc[T], clock: clock_.Clock, get_ttl: GetObjectTTLFunc, ttl: float
    ) -> None:
        """Create a store; `ttl`, in seconds, is the default if get_ttl returns None."""
        self._get_object = get_object
        self._clock = clock
        self._get_ttl = get_ttl
        self._default_ttl = ttl
        self._lock = threading.Lock()  # The lock guards _items and their fields, but not the contents of `data`.
        self._items: dict[ObjectKey, _ObjectStoreItem[T]] = {}

    def add_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        with self._lock:
            item = self._items.setdefault(ObjectKey(namespace, name), _ObjectStoreItem())
            item.ref_count += 1
            item.data = None

    def delete_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        key = ObjectKey(namespace, name)
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return
            item.ref_count -= 1
            if item.ref_count == 0:
                del self._items[key]

    def reference_count(self, namespace: str, name: str) -> int:
        with self._lock:
            item = self._items.get(ObjectKey(namespace, name))
            return item.ref_count if item is not None else 0

    def get(self, namespace: str, name: str) -> T:
        data = self._data_of(namespace, name)
        with data.lock:
            if data.missing is not None or not self._is_object_fresh(data):
                self._refresh(data, namespace, name)
            if data.missing is not None:
                raise apierrors.from_status(data.missing)
            assert data.object is not None
            return data.object

    def _data_of(self, namespace: str, name: str) -> _ObjectData[T]:
        with self._lock:
            item = self._items.get(ObjectKey(namespace, name))
            if item is None:
                raise NotRegisteredError(namespace, name)
            if item.data is None:
                item.data = _ObjectData()
            return item.data

    def _is_object_fresh(self, data: _ObjectData[T]) -> bool:
        ttl = self._get_ttl()
        age_limit = self._default_ttl if ttl is None else ttl
        return data.last_update_time is not None and self._clock.monotonic() < data.last_update_time + age_limit

    def _refresh(self, data: _ObjectData[T], namespace: str, name: str) -> None:
        """Fetch the object. If that fails, keep the earlier one, or raise the error if there is none."""
        try:
            data.object, data.missing = self._fetch(data.object, namespace, name), None
        except Exception as err:  # After any error, an older object is better than none.
            if apierrors.is_not_found(err):
                data.object, data.missing = None, apierrors.status_of(err)
                data.last_update_time = self._clock.monotonic()
            elif data.object is None and data.missing is None:
                raise
            return
        data.last_update_time = self._clock.monotonic()

    def _fetch(self, known: T | None, namespace: str, name: str) -> T:
        options = metav1.GetOptions()
        if known is None:
            return self._get_object(namespace, name, options)
        # The object existed before, so the API server's cache is good enough.
        fetched = self._get_object(namespace, name, util.from_apiserver_cache(options))
        if not _is_object_older(fetched, known):
            return fetched
        # DIVERGES (fault of Go): if the API server's cache has an older version of a config map or secret than the
        # kubelet, the kubelet asks for the version in the storage.
        # Go: pkg/kubelet/util/manager/cache_based_manager.go, (*objectStore).Get: the Go kubelet keeps the known
        # version.
        # Why: after the restore of a backup, pods would get objects that no longer exist.
        # Test: cache_based_manager_test.py:test_an_older_state_that_the_storage_was_given_back_is_taken
        return self._get_object(namespace, name, options)


def _is_object_older(new: Any, old: Any) -> bool:
    return _version(new) < _version(old)


def _version(obj: Any) -> int:
    """Return the resource version as a number, or 0 if it is not one."""
    text = obj.metadata.resource_version
    try:
        return strconv.parse_uint(text)
    except strconv.NumError:
        return 0


def get_object_ttl_from_node_func(
    ctx: golang.Context, get_node: Callable[[golang.Context], v1.Node]
) -> GetObjectTTLFunc:
    """Return a function that reads the TTL of objects from the node's annotation.

    The control plane sets the annotation by the size of the cluster.
    """

    def get_ttl() -> float | None:
        try:
            node = get_node(ctx)
        except golang.ContextError:
            raise
        except Exception:  # If the node cannot be read for any reason, the default applies.
            return None
        value = node.metadata.annotations.get(v1.OBJECT_TTL_ANNOTATION_KEY, "")
        try:
            return float(strconv.parse_int(value))
        except strconv.NumError:
            return None

    return get_ttl


class CacheBasedManager(Generic[T]):
    """Manage the objects of registered pods over any Store, and keep the store's references up to date."""

    def __init__(self, object_store: Store[T], get_referenced_objects: Callable[[v1.Pod], Set[str]]) -> None:
        self._object_store = object_store
        self._get_referenced_objects = get_referenced_objects
        # The lock guards _registered, and keeps it consistent with the store's references.
        self._lock = threading.Lock()
        # The values are the names of the objects that each registered pod refers to. A name whose reference could not
        # be added is missing, and the next registration of the pod adds it.
        self._registered: dict[ObjectKey, set[str]] = {}

    def get_object(self, namespace: str, name: str) -> T:
        return self._object_store.get(namespace, name)

    def register_pod(self, pod: v1.Pod) -> None:
        names = self._get_referenced_objects(pod)
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        with self._lock:
            # Existing references are not added again, because that would cause a fetch of the object.
            known = self._registered.setdefault(_key_of(pod), set())
            for name in names - known:
                self._object_store.add_reference(namespace, name, uid)
                known.add(name)
            for name in known - names:
                self._object_store.delete_reference(namespace, name, uid)
                known.remove(name)

    def unregister_pod(self, pod: v1.Pod) -> None:
        with self._lock:
            for name in self._registered.pop(_key_of(pod), ()):
                self._object_store.delete_reference(pod.metadata.namespace, name, pod.metadata.uid)


def _key_of(pod: v1.Pod) -> ObjectKey:
    return ObjectKey(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


if TYPE_CHECKING:

    def _conform(store: ObjectStore[T], manager: CacheBasedManager[T]) -> tuple[Store[T], Manager[T]]:
        return store, manager
