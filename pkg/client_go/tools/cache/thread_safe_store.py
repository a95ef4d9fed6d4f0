"""Store objects in a map with indices and a lock.

Go: k8s.io/client-go/tools/cache/thread_safe_store.go
"""

from __future__ import annotations

import builtins
import enum
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pkg import golang
from pkg.client_go.tools.cache.index import Indexers, IndexFunc

T = TypeVar("T")

# An index maps a value to the keys of the objects that have the value. The inner dict is an ordered set, so results
# keep the order of insertion.
_Index = dict[str, dict[str, None]]


class TransactionType(enum.StrEnum):
    ADD = "Add"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Transaction:
    """Describe one of several changes that are applied together."""

    type: TransactionType
    object: Any


@dataclass(frozen=True, slots=True)
class ThreadSafeStoreTransaction(Transaction):
    """Describe a transaction together with the key of its object."""

    key: str


class _StoreIndex(Generic[T]):
    """Hold the indices of a store; the store's lock guards them."""

    def __init__(self, indexers: Indexers) -> None:
        self.indexers = dict(indexers)
        self._indices: dict[str, _Index] = {}

    def get_keys_from_index(self, index_name: str, obj: T) -> list[str]:
        """Return the keys of the objects that share a value with `obj`."""
        values = self._func(index_name)(obj)
        found = self._indices.get(index_name, {})
        return list({key: None for value in values for key in found.get(value, {})})

    def get_keys_by_index(self, index_name: str, indexed_value: str) -> list[str]:
        self._func(index_name)
        return list(self._indices.get(index_name, {}).get(indexed_value, {}))

    def get_index_values(self, index_name: str) -> list[str]:
        return list(self._indices.get(index_name, {}))

    def add_indexers(self, new_indexers: Indexers) -> None:
        if conflicts := sorted(self.indexers.keys() & new_indexers.keys()):
            raise ValueError(f"indexer conflict: {', '.join(conflicts)}")
        self.indexers.update(new_indexers)

    def update_indices(self, old_obj: T | None, new_obj: T | None, key: str, names: Iterable[str] = ()) -> None:
        """Move a key from the old object's index values to the new object's.

        None means that the old or the new object does not exist.
        """
        for name in names or self.indexers:
            index_func, index = self.indexers[name], self._indices.setdefault(name, {})
            old = index_func(old_obj) if old_obj is not None else []
            new = index_func(new_obj) if new_obj is not None else []
            for value in old:
                if value not in new:
                    _delete_key(key, value, index)
            for value in new:
                index.setdefault(value, {})[key] = None

    def _func(self, index_name: str) -> IndexFunc:
        try:
            return self.indexers[index_name]
        except KeyError:
            raise LookupError(f"Index with name {index_name} does not exist") from None


def _delete_key(key: str, value: str, index: _Index) -> None:
    keys = index.get(value)
    if keys is None:
        return
    keys.pop(key, None)
    if not keys:  # An index value without objects must not stay in memory forever.
        del index[value]


class ThreadSafeMap(Generic[T]):
    """Hold objects by key.

    All methods are thread-safe. Callers share the objects and must not change them.
    """

    def __init__(self, indexers: Indexers) -> None:
        self._lock = threading.Lock()  # The lock guards the two fields below.
        self._items: dict[str, T] = {}
        self._index: _StoreIndex[T] = _StoreIndex(indexers)

    def add(self, key: str, obj: T) -> None:
        self.update(key, obj)

    def update(self, key: str, obj: T) -> None:
        with self._lock:
            self._update_locked(key, obj)

    def delete(self, key: str) -> None:
        with self._lock:
            self._delete_locked(key)

    def transaction(self, txns: Iterable[ThreadSafeStoreTransaction]) -> dict[int, Exception]:
        """Apply all changes before any other thread reads.

        Return the error of each failed transaction by its index.
        """
        errors: dict[int, Exception] = {}
        with self._lock:
            for index, txn in enumerate(txns):
                try:
                    if txn.type is TransactionType.DELETE:
                        self._delete_locked(txn.key)
                    else:
                        self._update_locked(txn.key, txn.object)
                except Exception as err:  # One bad object must not block the others.
                    errors[index] = golang.without_frames(err)
        return errors

    def get(self, key: str) -> T | None:
        with self._lock:
            return self._items.get(key)

    def list(self) -> builtins.list[T]:
        with self._lock:
            return [*self._items.values()]

    def list_keys(self) -> builtins.list[str]:
        with self._lock:
            return [*self._items]

    def replace(self, items: dict[str, T]) -> None:
        """Replace all objects with this map, or change nothing if there is not enough memory."""
        with self._lock:
            index: _StoreIndex[T] = _StoreIndex(self._index.indexers)
            for key, obj in items.items():
                index.update_indices(None, obj, key)
            self._items, self._index = items, index

    def index(self, index_name: str, obj: T) -> builtins.list[T]:
        with self._lock:
            return [self._items[key] for key in self._index.get_keys_from_index(index_name, obj)]

    def by_index(self, index_name: str, indexed_value: str) -> builtins.list[T]:
        with self._lock:
            return [self._items[key] for key in self._index.get_keys_by_index(index_name, indexed_value)]

    def index_keys(self, index_name: str, indexed_value: str) -> builtins.list[str]:
        with self._lock:
            return self._index.get_keys_by_index(index_name, indexed_value)

    def list_index_func_values(self, index_name: str) -> builtins.list[str]:
        with self._lock:
            return self._index.get_index_values(index_name)

    def get_indexers(self) -> Indexers:
        with self._lock:
            return dict(self._index.indexers)

    def add_indexers(self, new_indexers: Indexers) -> None:
        """Add index functions, and index the objects that are already stored.

        Raise ValueError if one of the names is already in use.
        """
        with self._lock:
            self._index.add_indexers(new_indexers)
            for key, obj in self._items.items():
                self._index.update_indices(None, obj, key, list(new_indexers))

    def _update_locked(self, key: str, obj: T) -> None:
        old = self._items.get(key)
        self._items[key] = obj
        self._index.update_indices(old, obj, key)

    def _delete_locked(self, key: str) -> None:
        old = self._items.pop(key, None)
        if old is not None:
            self._index.update_indices(old, None, key)
