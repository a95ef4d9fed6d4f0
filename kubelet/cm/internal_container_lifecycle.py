"""Call the resource managers at the steps of a container's life.

Go: pkg/kubelet/cm/internal_container_lifecycle.go, internal_container_lifecycle_linux.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pkg.api.core import v1

if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi

    from kubelet.cm import cpumanager, memorymanager, topologymanager


class InternalContainerLifecycle(Protocol):
    """Define the hooks that the runtime manager calls. An exception keeps the container from starting."""

    def pre_create_container(
        self, pod: v1.Pod, container: v1.Container, config: runtimeapi.ContainerConfig
    ) -> None: ...

    def pre_start_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None: ...

    def post_stop_container(self, container_id: str) -> None: ...


class InternalContainerLifecycleImpl:
    """Pin containers to their allocated cores and memory nodes. A manager that is None is left out."""

    def __init__(
        self,
        cpu_manager: cpumanager.Manager | None,
        memory_manager: memorymanager.Manager | None,
        topology_manager: topologymanager.Manager | None,
    ) -> None:
        self._cpu_manager = cpu_manager
        self._memory_manager = memory_manager
        self._topology_manager = topology_manager

    def pre_create_container(self, pod: v1.Pod, container: v1.Container, config: runtimeapi.ContainerConfig) -> None:
        if self._cpu_manager is not None:
            cpus = self._cpu_manager.get_cpu_affinity(pod.metadata.uid, container.name)
            if not cpus.is_empty():
                config.linux.resources.cpuset_cpus = str(cpus)
        if self._memory_manager is not None:
            nodes = self._memory_manager.get_memory_numa_nodes(pod, container)
            if nodes:
                config.linux.resources.cpuset_mems = ",".join(map(str, sorted(nodes)))

    def pre_start_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        if self._cpu_manager is not None:
            self._cpu_manager.add_container(pod, container, container_id)
        if self._memory_manager is not None:
            self._memory_manager.add_container(pod, container, container_id)
        if self._topology_manager is not None:
            self._topology_manager.add_container(pod, container, container_id)

    def post_stop_container(self, container_id: str) -> None:
        if self._topology_manager is not None:
            self._topology_manager.remove_container(container_id)
