"""Whom the pod resources API asks.

Go: pkg/kubelet/apis/podresources/types.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
from pkg.api.core import v1


class DevicesProvider(Protocol):
    def update_allocated_devices(self) -> None:
        """Take devices back from pods that have ended."""

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]:
        """What a container was given."""

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]:
        """All that the node has."""


class PodsProvider(Protocol):
    def get_active_pods(self) -> list[v1.Pod]: ...

    def get_pods(self) -> list[v1.Pod]: ...

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        """None for a pod that has ended, too."""


class CPUsProvider(Protocol):
    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]:
        """The cores that a container has for itself."""

    def get_allocatable_cpus(self) -> Sequence[int]:
        """All cores that containers can have for themselves."""


class MemoryProvider(Protocol):
    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]:
        """The memory of certain NUMA nodes that a container was given."""

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]:
        """All memory that can be given so."""


class DynamicResourcesProvider(Protocol):
    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> Sequence[podresourcesapi.DynamicResource]:
        """What a container has of the pod's claims."""


@dataclass(frozen=True, slots=True)
class PodResourcesProviders:
    pods: PodsProvider
    devices: DevicesProvider
    cpus: CPUsProvider
    memory: MemoryProvider
    dynamic_resources: DynamicResourcesProvider


class NothingAssigned:
    """The devices, cores and memory of a node that assigns none of them to single containers."""

    def update_allocated_devices(self) -> None:
        pass

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]:
        return ()

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]:
        return ()

    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]:
        return ()

    def get_allocatable_cpus(self) -> Sequence[int]:
        return ()

    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]:
        return ()

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]:
        return ()

    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> Sequence[podresourcesapi.DynamicResource]:
        return ()
