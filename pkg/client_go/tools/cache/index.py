"""Define indices, which map values to the keys of the objects that have these values.

Go: k8s.io/client-go/tools/cache/index.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

IndexFunc = Callable[[Any], list[str]]
"""An index function returns the values of an object in the index."""

Indexers = dict[str, IndexFunc]
"""Indexers map the name of an index to its index function."""

NAMESPACE_INDEX = "namespace"
"""This is the usual name of the index that meta_namespace_index_func makes."""


def meta_namespace_index_func(obj: Any) -> list[str]:
    """Return the namespace of an object; raise ValueError if it is not an API object."""
    metadata = getattr(obj, "metadata", None)
    if metadata is None:
        raise ValueError(f"object has no meta: {obj!r}")
    return [metadata.namespace]
