"""Select stored objects by label.

Go: k8s.io/client-go/tools/cache/listers.go
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from pkg import klog
from pkg.apimachinery import labels
from pkg.apimachinery.api import errors as apierrors
from pkg.client_go.tools.cache.index import NAMESPACE_INDEX
from pkg.client_go.tools.cache.store import Indexer, Store

T = TypeVar("T")


def list_all(store: Store[T], selector: labels.Selector) -> list[T]:
    """Return the objects of all namespaces that the selector matches."""
    return [] if selector.selects_nothing else _select(store.list(), selector)


def list_all_by_namespace(indexer: Indexer[T], namespace: str, selector: labels.Selector) -> list[T]:
    """Return the objects of one namespace ("" means all) that the selector matches."""
    if not namespace or selector.selects_nothing:
        return list_all(indexer, selector)
    try:
        objs = indexer.by_index(NAMESPACE_INDEX, namespace)
    except LookupError as err:
        klog.warning_s("Can not retrieve list of objects using index", err=err)
        objs = [obj for obj in indexer.list() if _metadata(obj).namespace == namespace]
    return _select(objs, selector)


class GenericLister(Generic[T]):
    """Read the objects of one resource from an indexer."""

    def __init__(self, indexer: Indexer[T], resource: str, namespace: str = "") -> None:
        """Prepare a lister; `resource` is the singular name for errors: "node", "csidriver.storage.k8s.io"."""
        self._indexer = indexer
        self._resource = resource
        self._namespace = namespace

    def list(self, selector: labels.Selector | None = None) -> builtins.list[T]:
        """Return the objects that the selector matches, or all objects without a selector."""
        return list_all_by_namespace(self._indexer, self._namespace, selector or labels.everything())

    def get(self, name: str) -> T:
        """Return the object with this name; raise apierrors.StatusError (not found) if it does not exist."""
        obj = self._indexer.get_by_key(f"{self._namespace}/{name}" if self._namespace else name)
        if obj is None:
            raise apierrors.new_not_found(self._resource, name)
        return obj

    def by_namespace(self, namespace: str) -> GenericLister[T]:
        """Return a lister for one namespace."""
        return GenericLister(self._indexer, self._resource, namespace)


def _select(objs: Iterable[T], selector: labels.Selector) -> list[T]:
    if selector.empty():
        return list(objs)
    return [obj for obj in objs if selector.matches(_metadata(obj).labels)]


def _metadata(obj: Any) -> Any:
    return obj.metadata
