"""Define what the pod resources API needs from the kubelet.

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
        """Release the devices of pods that have ended."""

    def get_devices(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerDevices]:
        """Return the devices of a container."""

    def get_allocatable_devices(self) -> Sequence[podresourcesapi.ContainerDevices]:
        """Return all devices of the node."""


class PodsProvider(Protocol):
    def get_active_pods(self) -> list[v1.Pod]: ...

    def get_pods(self) -> list[v1.Pod]: ...

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        """Return a pod, or None if it does not exist or has ended."""


class CPUsProvider(Protocol):
    def get_cpus(self, pod_uid: str, container_name: str) -> Sequence[int]:
        """Return the exclusive CPUs of a container."""

    def get_allocatable_cpus(self) -> Sequence[int]:
        """Return all CPUs that containers can get exclusively."""


class MemoryProvider(Protocol):
    def get_memory(self, pod_uid: str, container_name: str) -> Sequence[podresourcesapi.ContainerMemory]:
        """Return the memory of NUMA nodes that is assigned to a container."""

    def get_allocatable_memory(self) -> Sequence[podresourcesapi.ContainerMemory]:
        """Return all memory that can be assigned to containers."""


class DynamicResourcesProvider(Protocol):
    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> Sequence[podresourcesapi.DynamicResource]:
        """Return a container's resources from the pod's claims."""


@dataclass(frozen=True, slots=True)
class PodResourcesProviders:
    pods: PodsProvider
    devices: DevicesProvider
    cpus: CPUsProvider
    memory: MemoryProvider
    dynamic_resources: DynamicResourcesProvider


class NothingAssigned:
    """Represent a node that assigns no devices, CPUs or memory to single containers."""

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
