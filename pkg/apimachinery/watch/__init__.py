"""Watch changes of objects as a stream of events.

Go: k8s.io/apimachinery/pkg/watch

`watch.py` defines a watch, `streamwatcher.py` makes one from a stream of bytes, and `testing.py` makes one from a
test's events.
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
    UndecodableError,
)

__all__ = [
    "ADDED",
    "BOOKMARK",
    "DELETED",
    "ERROR",
    "MODIFIED",
    "Decoder",
    "Event",
    "Interface",
    "Reporter",
    "StreamWatcher",
    "Undecodable",
    "UndecodableError",
]
