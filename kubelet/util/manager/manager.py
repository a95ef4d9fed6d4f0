"""Define the manager of objects that pods refer to, and the store behind it.

Go: pkg/kubelet/util/manager/manager.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types

T_co = TypeVar("T_co", covariant=True)


class Manager(Protocol[T_co]):
    """Define the manager of objects of one kind.

    All methods are thread-safe; objects are shared, so callers must not change them.
    """

    def get_object(self, namespace: str, name: str) -> T_co:
        """Return an object that a registered pod refers to.

        Raise LookupError for any other object, apierrors.StatusError (not found) if the object does not exist, and the
        error of a failed read.
        """
        ...

    def register_pod(self, pod: v1.Pod) -> None:
        """Provide the objects that the pod refers to in its present version. Do not wait for the API server."""
        ...

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Forget the objects that no other registered pod refers to. Do not wait for the API server."""
        ...


class Store(Protocol[T_co]):
    """Define the store of objects, which it keeps while they have references. All methods are thread-safe."""

    def add_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        """Add a reference from the pod with this UID."""
        ...

    def delete_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        """Remove a reference; without references the object is removed too."""
        ...

    def get(self, namespace: str, name: str) -> T_co:
        """Return an object. Raise the same errors as Manager.get_object."""
        ...


def visited_names(visit: Callable[[v1.Pod, podutil.Visitor], bool], pod: v1.Pod) -> set[str]:
    """Return all names that `visit` finds in the pod."""
    names: set[str] = set()

    def note(name: str) -> bool:
        names.add(name)
        return True

    visit(pod, note)
    return names
