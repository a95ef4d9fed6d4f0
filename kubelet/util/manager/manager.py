"""What a manager of objects that pods refer to can do, and what the store behind it can.

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
    """Objects of one kind, by the pods that refer to them. Safe from any thread; objects are shared: never modify."""

    def get_object(self, namespace: str, name: str) -> T_co:
        """An object that a registered pod refers to.

        Raises LookupError for any other, apierrors.StatusError (not found) where there is none of that name, and
        what kept it from being read.
        """
        ...

    def register_pod(self, pod: v1.Pod) -> None:
        """Have at hand what the pod refers to, in its present version. Never waits for the API server."""
        ...

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Forget what no other registered pod refers to. Never waits for the API server."""
        ...


class Store(Protocol[T_co]):
    """Objects that are kept as long as somebody refers to them. Safe from any thread."""

    def add_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        """Count one more reference from the pod of that uid."""
        ...

    def delete_reference(self, namespace: str, name: str, referenced_from: types.UID) -> None:
        """Take back one reference; with the last one the object goes."""
        ...

    def get(self, namespace: str, name: str) -> T_co:
        """Raises as Manager.get_object."""
        ...


def visited_names(visit: Callable[[v1.Pod, podutil.Visitor], bool], pod: v1.Pod) -> set[str]:
    """The names that visit comes across in the pod, all of them."""
    names: set[str] = set()

    def note(name: str) -> bool:
        names.add(name)
        return True

    visit(pod, note)
    return names
