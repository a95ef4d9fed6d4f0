"""Watching objects change.

Go: staging/src/k8s.io/apimachinery/pkg/watch
"""

from pkg.apimachinery.watch.mux import (
    DROP_IF_CHANNEL_FULL,
    WAIT_IF_CHANNEL_FULL,
    Broadcaster,
    BroadcasterStoppedError,
    FullChannelBehavior,
)
from pkg.apimachinery.watch.watch import ADDED, BOOKMARK, DELETED, ERROR, MODIFIED, Event, Interface

__all__ = [
    "ADDED",
    "BOOKMARK",
    "DELETED",
    "DROP_IF_CHANNEL_FULL",
    "ERROR",
    "MODIFIED",
    "WAIT_IF_CHANNEL_FULL",
    "Broadcaster",
    "BroadcasterStoppedError",
    "Event",
    "FullChannelBehavior",
    "Interface",
]
