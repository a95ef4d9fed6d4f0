"""Keep the resources of pods only in memory.

Go: pkg/kubelet/allocation/state/state_mem.go
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection

from kubelet.allocation.state.state import PodResourceInfo, PodResourceInfoMap
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types


class StateMemory:
    """Store resources in a map, as State describes."""

    def __init__(self, resources: PodResourceInfoMap | None = None) -> None:
        self._lock = threading.Lock()  # This lock guards the map; the values are never modified.
        self._pod_resources: PodResourceInfoMap = dict(resources or {})
        klog.v(2).info_s("Initialized new in-memory state store for pod resource information tracking")

    def get_container_resources(self, pod_uid: types.UID, container_name: str) -> v1.ResourceRequirements | None:
        info = self.get_pod_resource_info(pod_uid)
        return None if info is None else info.container_resources.get(container_name)

    def get_pod_level_resources(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        info = self.get_pod_resource_info(pod_uid)
        return None if info is None else info.pod_level_resources

    def get_pod_resource_info_map(self) -> PodResourceInfoMap:
        with self._lock:
            return dict(self._pod_resources)

    def get_pod_resource_info(self, pod_uid: types.UID) -> PodResourceInfo | None:
        with self._lock:
            return self._pod_resources.get(pod_uid)

    def set_container_resources(
        self, pod_uid: types.UID, container_name: str, resources: v1.ResourceRequirements
    ) -> None:
        with self._lock:
            info = self._pod_resources.get(pod_uid, PodResourceInfo())
            containers = {**info.container_resources, container_name: resources}
            self._pod_resources[pod_uid] = dataclasses.replace(info, container_resources=containers)
        klog.v(3).info_s(
            "Updated container resource information",
            podUID=pod_uid,
            containerName=container_name,
            resources=resources,
        )

    def set_pod_level_resources(self, pod_uid: types.UID, resources: v1.ResourceRequirements | None) -> None:
        with self._lock:
            info = self._pod_resources.get(pod_uid, PodResourceInfo())
            self._pod_resources[pod_uid] = dataclasses.replace(info, pod_level_resources=resources)
        klog.v(3).info_s("Updated pod-level resource info", podUID=pod_uid, resources=resources)

    def set_pod_resource_info(self, pod_uid: types.UID, resource_info: PodResourceInfo) -> None:
        with self._lock:
            self._pod_resources[pod_uid] = resource_info
        klog.v(3).info_s("Updated pod resource information", podUID=pod_uid, information=resource_info)

    def remove_pod(self, pod_uid: types.UID) -> None:
        with self._lock:
            self._pod_resources.pop(pod_uid, None)
        klog.v(3).info_s("Deleted pod resource information", podUID=pod_uid)

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        with self._lock:
            for pod_uid in [uid for uid in self._pod_resources if uid not in remaining_pods]:
                del self._pod_resources[pod_uid]
