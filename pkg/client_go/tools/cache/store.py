"""Store the objects of one kind by key, and make the keys.

Go: k8s.io/client-go/tools/cache/store.go
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from pkg import golang
from pkg.client_go.tools.cache import index as index_
from pkg.client_go.tools.cache.thread_safe_store import ThreadSafeMap, ThreadSafeStoreTransaction, Transaction

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KeyFunc = Callable[[Any], str]


class ObjectKeyError(ValueError):
    """Signal that no key can be made for an object.

    Go: KeyError
    """

    def __init__(self, obj: object, err: object) -> None:
        super().__init__(f"couldn't create key for object {obj!r}: {err}")
        self.obj = obj


class TransactionError(Exception):
    """Signal that some of several transactions failed.

    `errors` maps the index of each failed transaction to its error.
    """

    def __init__(self, total_transactions: int, errors: dict[int, Exception]) -> None:
        super().__init__(
            f"failed to execute ({len(errors)}/{total_transactions}) transactions failed due to: "
            f"[{' '.join(map(str, errors.values()))}]"
        )
        self.total_transactions = total_transactions
        self.errors = errors

    @property
    def successful_indices(self) -> list[int]:
        return [index for index in range(self.total_transactions) if index not in self.errors]


class KeyListerGetter(Protocol[T_co]):
    """Define what a queue needs from the store that it feeds."""

    def list_keys(self) -> builtins.list[str]: ...

    def get_by_key(self, key: str) -> T_co | None: ...


class Store(Protocol[T]):
    """Define a store of objects by key.

    All methods are thread-safe. Callers share the objects and must not change them. Methods that take an object raise
    ObjectKeyError if the object has no key.
    """

    def add(self, obj: T) -> None: ...

    def update(self, obj: T) -> None: ...

    def delete(self, obj: T) -> None: ...

    def list(self) -> builtins.list[T]: ...

    def list_keys(self) -> builtins.list[str]: ...

    def get(self, obj: T) -> T | None:
        """Return the stored object that has the key of `obj`."""
        ...

    def get_by_key(self, key: str) -> T | None: ...

    def replace(self, objs: Iterable[T], resource_version: str) -> None:
        """Drop all stored objects, and store these instead."""
        ...

    def resync(self) -> None:
        """Report the stored objects again, if the store reports to anything."""
        ...


class TransactionStore(Store[T], Protocol[T]):
    """Define a store that can apply several changes atomically."""

    def transaction(self, *txns: Transaction) -> None:
        """Apply all changes before any other thread reads; raise TransactionError if some failed."""
        ...


class Indexer(TransactionStore[T], Protocol[T]):
    """Define a store that also finds objects by the values of index functions."""

    def index(self, index_name: str, obj: T) -> builtins.list[T]:
        """Return the objects that share a value of the index with `obj`; raise LookupError for an unknown index."""
        ...

    def index_keys(self, index_name: str, indexed_value: str) -> builtins.list[str]: ...

    def list_index_func_values(self, index_name: str) -> builtins.list[str]: ...

    def by_index(self, index_name: str, indexed_value: str) -> builtins.list[T]: ...

    def get_indexers(self) -> index_.Indexers: ...

    def add_indexers(self, new_indexers: index_.Indexers) -> None:
        """Add index functions; raise ValueError if one of the names is already in use."""
        ...


class ExplicitKey(str):
    """Represent a key in place of an object."""

    __slots__ = ()


class ObjectName(NamedTuple):
    """Represent the namespace ("" for none) and the name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def meta_namespace_key_func(obj: Any) -> str:
    """Return NAMESPACE/NAME, or NAME for an object without a namespace."""
    return obj if isinstance(obj, ExplicitKey) else str(object_to_name(obj))


def object_to_name(obj: Any) -> ObjectName:
    """Return the object's namespace and name; raise ObjectKeyError if it is not an API object."""
    metadata = getattr(obj, "metadata", None)
    if metadata is None:
        raise ObjectKeyError(obj, "object has no meta")
    return ObjectName(metadata.namespace, metadata.name)


def split_meta_namespace_key(key: str) -> ObjectName:
    """Parse a key of meta_namespace_key_func; raise ValueError if its form is wrong."""
    match key.split("/"):
        case [name]:
            return ObjectName("", name)
        case [namespace, name]:
            return ObjectName(namespace, name)
    raise ValueError(f'unexpected key format: "{key}"')


class Cache(Generic[T]):
    """Implement Store and Indexer with a key function and a map with indices."""

    def __init__(self, key_func: KeyFunc, indexers: index_.Indexers | None = None) -> None:
        self._key_func = key_func
        self._storage: ThreadSafeMap[T] = ThreadSafeMap(indexers or {})

    def transaction(self, *txns: Transaction) -> None:
        errors: dict[int, Exception] = {}
        keyed: dict[int, ThreadSafeStoreTransaction] = {}
        for index, txn in enumerate(txns):
            try:
                keyed[index] = ThreadSafeStoreTransaction(txn.type, txn.object, self._key_of(txn.object))
            except ObjectKeyError as err:
                errors[index] = golang.without_frames(err)
        failed = self._storage.transaction(keyed.values())
        errors.update((index, failed[number]) for number, index in enumerate(keyed) if number in failed)
        if errors:
            raise TransactionError(len(txns), errors)

    def add(self, obj: T) -> None:
        self._storage.add(self._key_of(obj), obj)

    def update(self, obj: T) -> None:
        self._storage.update(self._key_of(obj), obj)

    def delete(self, obj: T) -> None:
        self._storage.delete(self._key_of(obj))

    def list(self) -> builtins.list[T]:
        return self._storage.list()

    def list_keys(self) -> builtins.list[str]:
        return self._storage.list_keys()

    def get_indexers(self) -> index_.Indexers:
        return self._storage.get_indexers()

    def index(self, index_name: str, obj: T) -> builtins.list[T]:
        return self._storage.index(index_name, obj)

    def index_keys(self, index_name: str, indexed_value: str) -> builtins.list[str]:
        return self._storage.index_keys(index_name, indexed_value)

    def list_index_func_values(self, index_name: str) -> builtins.list[str]:
        return self._storage.list_index_func_values(index_name)

    def by_index(self, index_name: str, indexed_value: str) -> builtins.list[T]:
        return self._storage.by_index(index_name, indexed_value)

    def add_indexers(self, new_indexers: index_.Indexers) -> None:
        self._storage.add_indexers(new_indexers)

    def get(self, obj: T) -> T | None:
        return self.get_by_key(self._key_of(obj))

    def get_by_key(self, key: str) -> T | None:
        return self._storage.get(key)

    def replace(self, objs: Iterable[T], resource_version: str) -> None:
        self._storage.replace({self._key_of(obj): obj for obj in objs})

    def resync(self) -> None:
        """Do nothing, because this store reports to nothing."""

    def _key_of(self, obj: T) -> str:
        try:
            return self._key_func(obj)
        except ObjectKeyError:
            raise
        except ValueError as err:
            raise ObjectKeyError(obj, err) from err


def new_store(key_func: KeyFunc) -> Store[Any]:
    """Return a Store that is a map with a lock."""
    return Cache(key_func)


def new_indexer(key_func: KeyFunc, indexers: index_.Indexers) -> Indexer[Any]:
    """Return an Indexer that is a map with a lock."""
    return Cache(key_func, indexers)


if TYPE_CHECKING:
    _STORE: Store[Any] = Cache[Any](meta_namespace_key_func)
    _INDEXER: Indexer[Any] = Cache[Any](meta_namespace_key_func)
