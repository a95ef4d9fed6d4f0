"""Define the stored resources of pods, and the interface of their store.

Go: pkg/kubelet/allocation/state/state.go
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from pkg.api.core import v1
from pkg.apimachinery import types


@dataclass(frozen=True, slots=True)
class PodResourceInfo:
    """Hold the resources of a pod's containers, by name, and the pod-level resources.

    The object is shared and must not be modified in place.
    """

    container_resources: dict[str, v1.ResourceRequirements] = field(default_factory=dict)
    pod_level_resources: v1.ResourceRequirements | None = None


# The keys are UIDs of pods.
PodResourceInfoMap = dict[types.UID, PodResourceInfo]


class Reader(Protocol):
    """Define read access to the store. Returned objects are shared and must not be modified; None means no entry."""

    def get_container_resources(self, pod_uid: types.UID, container_name: str) -> v1.ResourceRequirements | None: ...

    def get_pod_resource_info_map(self) -> PodResourceInfoMap: ...

    def get_pod_resource_info(self, pod_uid: types.UID) -> PodResourceInfo | None: ...

    def get_pod_level_resources(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        """Return the pod-level resources, or None if the pod has none or is unknown."""
        ...


class State(Reader, Protocol):
    """Define a store of resources. All methods are thread-safe; setters raise OSError.

    The store shares the objects that it gets, so the caller must not modify them afterwards.
    """

    def set_container_resources(
        self, pod_uid: types.UID, container_name: str, resources: v1.ResourceRequirements
    ) -> None: ...

    def set_pod_resource_info(self, pod_uid: types.UID, resource_info: PodResourceInfo) -> None: ...

    def set_pod_level_resources(self, pod_uid: types.UID, resources: v1.ResourceRequirements | None) -> None: ...

    def remove_pod(self, pod_uid: types.UID) -> None: ...

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        """Forget all pods except these."""
        ...
