"""Names for groups of stored objects: an index maps values to the keys of the objects that have them.

Go: k8s.io/client-go/tools/cache/index.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

IndexFunc = Callable[[Any], list[str]]
"""The values of an object in an index."""

Indexers = dict[str, IndexFunc]
"""Index functions by the name of their index."""

NAMESPACE_INDEX = "namespace"
"""The usual name of the index that meta_namespace_index_func makes."""


def meta_namespace_index_func(obj: Any) -> list[str]:
    """The namespace of an object; raises ValueError for what is no API object."""
    metadata = getattr(obj, "metadata", None)
    if metadata is None:
        raise ValueError(f"object has no meta: {obj!r}")
    return [metadata.namespace]
