"""Define the changes of objects that queues carry.

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
    """A first or later list contained the object; whether the object changed is unknown."""
    REPLACED_ALL = "ReplacedAll"
    """A first or later list returned all objects. The delta's object is a ReplacedAllInfo."""
    SYNC = "Sync"
    """A periodic resync reports the object again."""
    SYNC_ALL = "SyncAll"
    """A periodic resync reports all objects again. The delta's object is None."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Describe one change of an object, and the object after the change.

    For a deletion, `object` is the last known version.
    """

    type: DeltaType
    object: Any


Deltas = list[Delta]
"""The deltas are ordered from the oldest to the newest. The list is never empty."""


@dataclass(frozen=True, slots=True)
class DeletedFinalStateUnknown:
    """Represent an object whose DELETED event was missed.

    `obj` is the last known version, or None if there is none.
    """

    key: str
    obj: Any


def deletion_handling_meta_namespace_key_func(obj: Any) -> str:
    """Return the key of an object or of a DeletedFinalStateUnknown.

    Go: controller.go
    """
    return obj.key if isinstance(obj, DeletedFinalStateUnknown) else meta_namespace_key_func(obj)
