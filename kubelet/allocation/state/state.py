"""What is kept of a pod's resources, and who keeps it.

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
    """The resources of a pod's containers, by name, and of the pod as a whole. Shared: never changed in place."""

    container_resources: dict[str, v1.ResourceRequirements] = field(default_factory=dict)
    pod_level_resources: v1.ResourceRequirements | None = None


# By the pod's uid.
PodResourceInfoMap = dict[types.UID, PodResourceInfo]


class Reader(Protocol):
    """What is kept. All that is handed out is shared and must not be changed; None where nothing is kept."""

    def get_container_resources(self, pod_uid: types.UID, container_name: str) -> v1.ResourceRequirements | None: ...

    def get_pod_resource_info_map(self) -> PodResourceInfoMap: ...

    def get_pod_resource_info(self, pod_uid: types.UID) -> PodResourceInfo | None: ...

    def get_pod_level_resources(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        """None also for a pod that is known to have no resources of its own."""
        ...


class State(Reader, Protocol):
    """Keeps resources. Thread-safe; all that is handed in is shared from then on. Setters raise OSError."""

    def set_container_resources(
        self, pod_uid: types.UID, container_name: str, resources: v1.ResourceRequirements
    ) -> None: ...

    def set_pod_resource_info(self, pod_uid: types.UID, resource_info: PodResourceInfo) -> None: ...

    def set_pod_level_resources(self, pod_uid: types.UID, resources: v1.ResourceRequirements | None) -> None: ...

    def remove_pod(self, pod_uid: types.UID) -> None: ...

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        """Forget all pods but these."""
        ...
