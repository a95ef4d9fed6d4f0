"""Provide a manager with the API objects that a test sets.

Go: pkg/kubelet/secret/fake_manager.go, pkg/kubelet/configmap/fake_manager.go
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors

T = TypeVar("T", v1.Secret, v1.ConfigMap)


class FakeObjectManager(Generic[T]):
    """Return the given objects, and record the registered pods."""

    def __init__(self, resource: str, *objects: T) -> None:
        self._resource = resource
        # The keys are namespace and name.
        self.objects: dict[tuple[str, str], T] = {
            (each.metadata.namespace, each.metadata.name): each for each in objects
        }
        self.registered: list[v1.Pod] = []
        # The list has the namespace and name of each read.
        self.reads: list[tuple[str, str]] = []
        # get_object raises this error, if it is set.
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
