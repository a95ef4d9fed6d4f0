"""How containers get memory of NUMA nodes.

Go: pkg/kubelet/cm/memorymanager/policy.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet.cm.memorymanager import state
from kubelet.cm.topologymanager import Hints
from pkg.api.core import v1


class Policy(Protocol):
    """Decides. All it knows is in the state that it is given with each call."""

    def name(self) -> str: ...

    def start(self, s: state.State) -> None:
        """Raises ValueError if the state does not fit the machine."""
        ...

    def allocate(self, s: state.State, pod: v1.Pod, container: v1.Container) -> None:
        """Gives the container its memory; one that has it already keeps it. Raises ValueError when it cannot."""
        ...

    def remove_container(self, s: state.State, pod_uid: str, container_name: str) -> None:
        """Takes back what the container had; nothing for one that had nothing."""
        ...

    def get_topology_hints(self, s: state.State, pod: v1.Pod, container: v1.Container) -> Hints:
        """From which NUMA nodes the container could get its memory."""
        ...

    def get_pod_topology_hints(self, s: state.State, pod: v1.Pod) -> Hints:
        """From which NUMA nodes the pod could get all its memory."""
        ...

    def get_allocatable_memory(self, s: state.State) -> list[state.Block]:
        """What containers may have, of each NUMA node."""
        ...
