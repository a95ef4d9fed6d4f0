"""Objects fetched when they are asked for and the last answer is too old, and the pods that refer to them.

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
"""Seconds that an answer is good for; None if nobody has said."""

GetObjectFunc = Callable[[str, str, metav1.GetOptions], T]
"""Gets the object of a namespace and name from the API server."""


class ObjectKey(NamedTuple):
    namespace: str
    name: str
    uid: types.UID = types.UID("")


class NotRegisteredError(LookupError):
    """No registered pod refers to the object."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f'object "{namespace}"/"{name}" not registered')


@dataclass(slots=True)
class _ObjectData(Generic[T]):
    # Held while the object is fetched: who asks for the same one meanwhile gets that answer.
    lock: threading.Lock = field(default_factory=threading.Lock)
    object: T | None = None
    # The API server's answer for an object that does not exist. The error itself is not kept: an error that is raised
    # holds the frames of its callers, and those hold data such as a volume's files.
    missing: metav1.Status | None = None
    # By the steady clock; None before the first fetch.
    last_update_time: float | None = None


@dataclass(slots=True)
class _ObjectStoreItem(Generic[T]):
    ref_count: int = 0
    # None asks for a fetch, whatever the age of what was known.
    data: _ObjectData[T] | None = None


class ObjectStore(Generic[T]):
    """A Store that asks the API server again once an answer is older than its TTL."""

    def __init__(
        self, get_object: GetObjectFunc[T], clock: clock_.Clock, get_ttl: GetObjectTTLFunc, ttl: float
    ) -> None:
        """`ttl` seconds are what holds where get_ttl does not know."""
        self._get_object = get_object
        self._clock = clock
        self._get_ttl = get_ttl
        self._default_ttl = ttl
        self._lock = threading.Lock()  # guards _items and what they hold, not the data of each
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
        """Fetch the object. What is known stays if that fails; raises the error if nothing is known."""
        try:
            data.object, data.missing = self._fetch(data.object, namespace, name), None
        except Exception as err:  # whatever it is, an older answer is better than none
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
        # It was there a while ago: what the API server has in memory is good enough.
        fetched = self._get_object(namespace, name, util.from_apiserver_cache(options))
        if not _is_object_older(fetched, known):
            return fetched
        # DIVERGES (fault of Go): if the API server's cache has an older version of a config map or secret than the
        # kubelet, the storage behind the cache is asked.
        # Go: pkg/kubelet/util/manager/cache_based_manager.go, (*objectStore).Get: keeps the version that is known.
        # Why: after a backup has been restored, pods would get objects that do not exist any more.
        # Test: cache_based_manager_test.py:test_an_older_state_that_the_storage_was_given_back_is_taken
        return self._get_object(namespace, name, options)


def _is_object_older(new: Any, old: Any) -> bool:
    return _version(new) < _version(old)


def _version(obj: Any) -> int:
    """The resource version as a number, 0 for what is none."""
    text = obj.metadata.resource_version
    try:
        return strconv.parse_uint(text)
    except strconv.NumError:
        return 0


def get_object_ttl_from_node_func(
    ctx: golang.Context, get_node: Callable[[golang.Context], v1.Node]
) -> GetObjectTTLFunc:
    """The TTL that an annotation of the node says, which the control plane sets by the cluster's size."""

    def get_ttl() -> float | None:
        try:
            node = get_node(ctx)
        except golang.ContextError:
            raise
        except Exception:  # without the node, whatever it is that keeps it away, the default holds
            return None
        value = node.metadata.annotations.get(v1.OBJECT_TTL_ANNOTATION_KEY, "")
        try:
            return float(strconv.parse_int(value))
        except strconv.NumError:
            return None

    return get_ttl


class CacheBasedManager(Generic[T]):
    """A Manager over any Store: it keeps the store's references as the registered pods have them."""

    def __init__(self, object_store: Store[T], get_referenced_objects: Callable[[v1.Pod], Set[str]]) -> None:
        self._object_store = object_store
        self._get_referenced_objects = get_referenced_objects
        self._lock = threading.Lock()  # guards _registered, and keeps the store's counts in step with it
        # The names of the objects that each registered pod refers to. One that could not be counted is missing, and
        # is counted when the pod is registered again.
        self._registered: dict[ObjectKey, set[str]] = {}

    def get_object(self, namespace: str, name: str) -> T:
        return self._object_store.get(namespace, name)

    def register_pod(self, pod: v1.Pod) -> None:
        names = self._get_referenced_objects(pod)
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        with self._lock:
            # A reference that stays is not counted anew: that would ask the API server for the object.
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
