"""Store the objects of the manifest directory by kind and name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from kubelet import config
from pkg import klog
from pkg.api import pod as podutil
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors

T = TypeVar("T", bound=config.APIObject)

# Errors about missing objects use these names.
_RESOURCES: dict[type, str] = {
    v1.ConfigMap: "configmap",
    v1.Secret: "secret",
    v1.PersistentVolumeClaim: "persistentvolumeclaim",
    v1.PersistentVolume: "persistentvolume",
}


class Changed(NamedTuple):
    """Identify an object that was added, modified or removed."""

    kind: type
    namespace: str
    name: str


class ObjectStore:
    """Store the contents of the manifest directory.

    Any thread may call this class. Objects are shared, and callers must never modify one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _objects and _version.
        self._objects: dict[Changed, config.APIObject] = {}
        self._version = 0
        self._on_change: Callable[[set[Changed]], None] = lambda changed: None

    def follow(self, on_change: Callable[[set[Changed]], None]) -> None:
        """Call on_change for each later change, on the thread that makes the change."""
        self._on_change = on_change

    def replace(self, objects: Sequence[config.APIObject]) -> None:
        """Replace all objects with these."""
        with self._lock:
            before = self._objects
            self._version += 1
            self._objects = {}
            changed = set()
            for obj in objects:
                key = Changed(type(obj), obj.metadata.namespace, obj.metadata.name)
                known = before.get(key)
                if known is not None and _same(known, obj):
                    self._objects[key] = known
                    continue
                obj.metadata.resource_version = str(self._version)
                self._objects[key] = obj
                changed.add(key)
            changed |= before.keys() - self._objects.keys()
        if changed:
            names = sorted(f"{key.kind.__name__} {klog.kref(key.namespace, key.name)}" for key in changed)
            klog.v(2).info_s("Objects of the manifest directory changed", objects=names)
            self._on_change(changed)

    def get(self, type_: type[T], namespace: str, name: str) -> T:
        """Return the object. Raise apierrors.StatusError (not found) if no file contains it."""
        with self._lock:
            found = self._objects.get(Changed(type_, namespace, name))
        if not isinstance(found, type_):
            raise apierrors.new_not_found(_RESOURCES[type_], name)
        return found

    def list(self, type_: type[T]) -> list[T]:
        """Return all objects of a kind, sorted by namespace and name."""
        with self._lock:
            found = sorted(self._objects.items(), key=lambda item: item[0][1:])
        return [obj for _, obj in found if isinstance(obj, type_)]


def _same(known: config.APIObject, obj: config.APIObject) -> bool:
    """Report whether the two objects are equal except for the version, which the store sets and no file contains."""
    version = known.metadata.resource_version
    metadata = msgspec.structs.replace(obj.metadata, resource_version=version)
    return bool(known == msgspec.structs.replace(obj, metadata=metadata))


def refers_to(pod: v1.Pod, changed: set[Changed]) -> bool:
    """Report whether the pod's spec names one of the objects.

    A changed PersistentVolume counts for every pod with a claim, because it may be the volume of the claim.
    """
    names = {(key.kind, key.name) for key in changed if key.namespace == pod.metadata.namespace}
    claims = [volume.persistent_volume_claim for volume in pod.spec.volumes if volume.persistent_volume_claim]
    if claims and any(key.kind is v1.PersistentVolume for key in changed):
        return True

    def unchanged(kind: type) -> Callable[[str], bool]:
        return lambda name: (kind, name) not in names

    if not podutil.visit_pod_secret_names(pod, unchanged(v1.Secret)):
        return True
    if not podutil.visit_pod_configmap_names(pod, unchanged(v1.ConfigMap)):
        return True
    return any((v1.PersistentVolumeClaim, claim.claim_name) in names for claim in claims)
