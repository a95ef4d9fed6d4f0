"""Streams of changes of objects.

Go: k8s.io/apimachinery/pkg/watch

`watch.py` says what a watch is, `streamwatcher.py` makes one of a stream of bytes, `mux.py` of calls in this process,
`testing.py` of what a test says.
"""

from pkg.apimachinery.watch.streamwatcher import Decoder, Reporter, StreamWatcher
from pkg.apimachinery.watch.watch import (
    ADDED,
    BOOKMARK,
    DELETED,
    ERROR,
    MODIFIED,
    Event,
    Interface,
    Undecodable,
)

from pkg.apimachinery.watch.mux import (  # isort: skip
    DROP_IF_CHANNEL_FULL,
    WAIT_IF_CHANNEL_FULL,
    Broadcaster,
    BroadcasterStoppedError,
    FullChannelBehavior,
    new_long_queue_broadcaster,
)

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
    "Decoder",
    "Event",
    "FullChannelBehavior",
    "Interface",
    "Reporter",
    "StreamWatcher",
    "Undecodable",
    "new_long_queue_broadcaster",
]
