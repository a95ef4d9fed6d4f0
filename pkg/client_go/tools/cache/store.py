"""Objects of one kind by key, and how the key of an object is made.

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
    """No key can be made for an object. Go: KeyError"""

    def __init__(self, obj: object, err: object) -> None:
        super().__init__(f"couldn't create key for object {obj!r}: {err}")
        self.obj = obj


class TransactionError(Exception):
    """Some of several transactions could not be done: `errors` says why, by the index of the transaction."""

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
    """What a queue asks of the store that it feeds."""

    def list_keys(self) -> builtins.list[str]: ...

    def get_by_key(self, key: str) -> T_co | None: ...


class Store(Protocol[T]):
    """Objects by key. Safe from any thread; the objects are shared and must not be changed.

    What takes an object raises ObjectKeyError if that has no key.
    """

    def add(self, obj: T) -> None: ...

    def update(self, obj: T) -> None: ...

    def delete(self, obj: T) -> None: ...

    def list(self) -> builtins.list[T]: ...

    def list_keys(self) -> builtins.list[str]: ...

    def get(self, obj: T) -> T | None:
        """The stored object with the key of `obj`."""
        ...

    def get_by_key(self, key: str) -> T | None: ...

    def replace(self, objs: Iterable[T], resource_version: str) -> None:
        """Drop everything, and store these instead."""
        ...

    def resync(self) -> None:
        """Report the stored objects again, where the store reports to somebody."""
        ...


class TransactionStore(Store[T], Protocol[T]):
    """A store that can be changed in several places at once."""

    def transaction(self, *txns: Transaction) -> None:
        """Do all of them before anybody else reads; raises TransactionError if some could not be done."""
        ...


class Indexer(TransactionStore[T], Protocol[T]):
    """A store that also finds objects by what index functions say of them."""

    def index(self, index_name: str, obj: T) -> builtins.list[T]:
        """The objects that share a value of the index with `obj`; raises LookupError for an unknown index."""
        ...

    def index_keys(self, index_name: str, indexed_value: str) -> builtins.list[str]: ...

    def list_index_func_values(self, index_name: str) -> builtins.list[str]: ...

    def by_index(self, index_name: str, indexed_value: str) -> builtins.list[T]: ...

    def get_indexers(self) -> index_.Indexers: ...

    def add_indexers(self, new_indexers: index_.Indexers) -> None:
        """Raises ValueError if one of the names is taken."""
        ...


class ExplicitKey(str):
    """A key that stands where an object is expected."""

    __slots__ = ()


class ObjectName(NamedTuple):
    """The namespace ("" for none) and name of an object of some kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def meta_namespace_key_func(obj: Any) -> str:
    """NAMESPACE/NAME, or NAME for an object without namespace."""
    return obj if isinstance(obj, ExplicitKey) else str(object_to_name(obj))


def object_to_name(obj: Any) -> ObjectName:
    """Raises ObjectKeyError for what is no API object."""
    metadata = getattr(obj, "metadata", None)
    if metadata is None:
        raise ObjectKeyError(obj, "object has no meta")
    return ObjectName(metadata.namespace, metadata.name)


def split_meta_namespace_key(key: str) -> ObjectName:
    """The opposite of meta_namespace_key_func; raises ValueError."""
    match key.split("/"):
        case [name]:
            return ObjectName("", name)
        case [namespace, name]:
            return ObjectName(namespace, name)
    raise ValueError(f'unexpected key format: "{key}"')


class Cache(Generic[T]):
    """The Store and Indexer: a key function over a map with indices."""

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
        """Nothing to do: nobody is told."""

    def _key_of(self, obj: T) -> str:
        try:
            return self._key_func(obj)
        except ObjectKeyError:
            raise
        except ValueError as err:
            raise ObjectKeyError(obj, err) from err


def new_store(key_func: KeyFunc) -> Store[Any]:
    """A Store that is a map with a lock."""
    return Cache(key_func)


def new_indexer(key_func: KeyFunc, indexers: index_.Indexers) -> Indexer[Any]:
    """An Indexer that is a map with a lock."""
    return Cache(key_func, indexers)


if TYPE_CHECKING:
    _STORE: Store[Any] = Cache[Any](meta_namespace_key_func)
    _INDEXER: Indexer[Any] = Cache[Any](meta_namespace_key_func)
