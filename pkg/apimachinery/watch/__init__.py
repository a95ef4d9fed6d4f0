"""Streams of changes of objects.

Go: k8s.io/apimachinery/pkg/watch

`watch.py` says what a watch is, `streamwatcher.py` makes one of a stream of bytes, `testing.py` of what a test says.
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
