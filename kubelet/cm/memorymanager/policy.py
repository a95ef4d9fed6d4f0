"""Define what a policy of the memory manager does.

Go: pkg/kubelet/cm/memorymanager/policy.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet.cm.memorymanager import state
from kubelet.cm.topologymanager import Hints
from pkg.api.core import v1


class Policy(Protocol):
    """Define how memory is allocated. A policy keeps nothing itself: each call passes the state."""

    def name(self) -> str: ...

    def start(self, s: state.State) -> None:
        """Check the state. Raise ValueError if it does not fit the machine."""
        ...

    def allocate(self, s: state.State, pod: v1.Pod, container: v1.Container) -> None:
        """Allocate the container's memory, unless it already has it. Raise ValueError if that is impossible."""
        ...

    def remove_container(self, s: state.State, pod_uid: str, container_name: str) -> None:
        """Release the container's memory, if it has any."""
        ...

    def get_topology_hints(self, s: state.State, pod: v1.Pod, container: v1.Container) -> Hints:
        """Return the NUMA nodes that could provide the container's memory."""
        ...

    def get_pod_topology_hints(self, s: state.State, pod: v1.Pod) -> Hints:
        """Return the NUMA nodes that could provide all the pod's memory."""
        ...

    def get_allocatable_memory(self, s: state.State) -> list[state.Block]:
        """Return the memory that containers can get from each NUMA node."""
        ...
