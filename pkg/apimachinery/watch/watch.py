"""Changes of objects, one after the other.

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
# Nothing happened; the object tells only how far the watch has come, in its resource version.
BOOKMARK = "BOOKMARK"
# The watch ends; the object is a metav1.Status that says why.
ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One change. The object is as it is after it, for DELETED as it was last."""

    type: str
    object: T


class UndecodableError(codec.DecodeError):
    """An answer of the server is an object that cannot be decoded; `partial` is as much of it as can, if anything."""

    def __init__(self, message: str, partial: Any) -> None:
        super().__init__(message)
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Stands for an object that could not be decoded: as much of it as it takes to know which one it is.

    `partial` is the object without those fields that cannot be decoded, None if nothing can be.

    DIVERGES (safer): an object that cannot be decoded is left out of a list or watch, and those who use it are told
    which one it is.
    Go: k8s.io/apimachinery/pkg/watch/streamwatcher.go, (*StreamWatcher).receive: the watch ends with an error, and so
    does each new list with this object in it.
    Why: one bad object must not hide the changes of all others.
    Test: pkg/client_go/kubernetes/typed_test.py:test_watch
    """

    namespace: str
    name: str
    resource_version: str
    partial: Any = None

    @property
    def key(self) -> str:
        """The object's key in stores, namespace/name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Interface(Protocol[T]):
    """A running watch."""

    def stop(self) -> None:
        """End it, from any thread, at once; its channel is closed soon after. Calling it again does nothing."""
        ...

    def result_chan(self) -> golang.Channel[Event[T]]:
        """The changes; closed when the watch ends, for whatever reason."""
        ...
