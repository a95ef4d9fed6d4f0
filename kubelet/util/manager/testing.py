"""Objects of the API server that tests put in.

Go: pkg/kubelet/secret/fake_manager.go, pkg/kubelet/configmap/fake_manager.go
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors

T = TypeVar("T", v1.Secret, v1.ConfigMap)


class FakeObjectManager(Generic[T]):
    """Has the objects that it was made with, and says for which pods it was asked to have some at hand."""

    def __init__(self, resource: str, *objects: T) -> None:
        self._resource = resource
        # By namespace and name.
        self.objects: dict[tuple[str, str], T] = {
            (each.metadata.namespace, each.metadata.name): each for each in objects
        }
        self.registered: list[v1.Pod] = []
        # Namespace and name of each that was asked for.
        self.reads: list[tuple[str, str]] = []
        # What get_object raises, if anything.
        self.err: Exception | None = None

    def get_object(self, namespace: str, name: str) -> T:
        self.reads.append((namespace, name))
        if self.err is not None:
            raise self.err
        found = self.objects.get((namespace, name))
        if found is None:
            raise apierrors.new_not_found(self._resource, name)
        return found

    def register_pod(self, pod: v1.Pod) -> None:
        self.registered.append(pod)

    def unregister_pod(self, pod: v1.Pod) -> None:
        self.registered = [each for each in self.registered if each.metadata.uid != pod.metadata.uid]
