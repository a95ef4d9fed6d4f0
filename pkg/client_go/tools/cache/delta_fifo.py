"""What can happen to objects, as queues say it.

Go: k8s.io/client-go/tools/cache/delta_fifo.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from pkg.client_go.tools.cache.store import meta_namespace_key_func


class DeltaType(enum.StrEnum):
    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"
    """The object was listed, first or again; whether it changed is not known."""
    REPLACED_ALL = "ReplacedAll"
    """All objects were listed, first or again: the delta's object is a ReplacedAllInfo."""
    SYNC = "Sync"
    """The object is reported again because it is time to."""
    SYNC_ALL = "SyncAll"
    """All objects are reported again because it is time to; the delta's object is None."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One thing that happened to an object, and the object after it; of a deletion the last that was known."""

    type: DeltaType
    object: Any


Deltas = list[Delta]
"""What happened, oldest first; never empty."""


@dataclass(frozen=True, slots=True)
class DeletedFinalStateUnknown:
    """Stands for an object whose deletion was missed: `obj` is how it was last seen, None if it was not."""

    key: str
    obj: Any


def deletion_handling_meta_namespace_key_func(obj: Any) -> str:
    """As meta_namespace_key_func, also for what stands for a deleted object. Go: controller.go"""
    return obj.key if isinstance(obj, DeletedFinalStateUnknown) else meta_namespace_key_func(obj)
