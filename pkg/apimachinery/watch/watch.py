"""Define watches and their events.

Go: k8s.io/apimachinery/pkg/watch/watch.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pkg import golang
from pkg.apimachinery.runtime import codec

T = TypeVar("T")

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
# A bookmark reports no change. The resource version of its object says how far the watch has advanced.
BOOKMARK = "BOOKMARK"
# An error ends the watch. The object is a metav1.Status with the reason.
ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """Represent one change; the object is the new version, or for DELETED the last one."""

    type: str
    object: T


class UndecodableError(codec.DecodeError):
    """Signal that a response contains an object that cannot be decoded.

    `partial` is the decodable part, or None.
    """

    def __init__(self, message: str, partial: Any) -> None:
        super().__init__(message)
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Identify an object that could not be decoded.

    `partial` is the object without the fields that cannot be decoded, or None if nothing can be.

    DIVERGES (safer): the kubelet leaves an object that cannot be decoded out of a list or watch, and tells its
    consumers which object it is.
    Go: k8s.io/apimachinery/pkg/watch/streamwatcher.go, (*StreamWatcher).receive: the watch ends with an error, and so
    does each new list that contains this object.
    Why: one bad object must not hide the changes of all others.
    Test: pkg/client_go/kubernetes/typed_test.py:test_watch
    """

    namespace: str
    name: str
    resource_version: str
    partial: Any = None

    @property
    def key(self) -> str:
        """Return the object's key in stores, namespace/name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Interface(Protocol[T]):
    """Define a running watch."""

    def stop(self) -> None:
        """End the watch at once, from any thread; its channel is closed soon after. Further calls do nothing."""
        ...

    def result_chan(self) -> golang.Channel[Event[T]]:
        """Return the channel of the changes, which is closed when the watch ends for any reason."""
        ...
