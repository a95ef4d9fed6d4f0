"""What is known of the memory of each NUMA node, and what each container has of it.

Go: pkg/kubelet/cm/memorymanager/state/state.go
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec


class MemoryTable(msgspec.Struct):
    """One kind of memory of a NUMA node, in bytes. Allocatable is what containers may have: free and reserved."""

    total_mem_size: int = msgspec.field(default=0, name="total")
    system_reserved: int = msgspec.field(default=0, name="systemReserved")
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class NUMANodeState(msgspec.Struct):
    """A NUMA node.

    number_of_assignments counts each kind of memory of each container. cells are the nodes that are used together
    with this one, itself among them: containers that have memory of several nodes have it of all these.
    """

    number_of_assignments: int = msgspec.field(default=0, name="numberOfAssignments")
    # By resource: "memory", "hugepages-2Mi", ...
    memory_map: dict[str, MemoryTable] = msgspec.field(default_factory=dict, name="memoryMap")
    cells: list[int] = []


class Block(msgspec.Struct, frozen=True):
    """Some memory of one kind, in bytes, of these NUMA nodes together."""

    numa_affinity: tuple[int, ...] = msgspec.field(default=(), name="numaAffinity")
    type: str = ""
    size: int = 0


# By the node's number.
NUMANodeMap = dict[int, NUMANodeState]
# By the pod's uid, and the container's name.
ContainerMemoryAssignments = dict[str, dict[str, list[Block]]]


def clone_node_map(node_map: NUMANodeMap) -> NUMANodeMap:
    """A copy that may be changed."""
    return {
        node: NUMANodeState(
            state.number_of_assignments,
            {name: msgspec.structs.replace(table) for name, table in state.memory_map.items()},
            list(state.cells),
        )
        for node, state in node_map.items()
    }


def clone_assignments(assignments: ContainerMemoryAssignments) -> ContainerMemoryAssignments:
    """A copy that may be changed; blocks never are."""
    return {pod: {name: list(blocks) for name, blocks in containers.items()} for pod, containers in assignments.items()}


class Reader(Protocol):
    """What is known now. All that is handed out is a copy."""

    def get_machine_state(self) -> NUMANodeMap: ...

    def get_memory_blocks(self, pod_uid: str, container_name: str) -> list[Block] | None:
        """None for a container that has none; one that shares what it had keeps blocks of size 0."""
        ...

    def get_memory_assignments(self) -> ContainerMemoryAssignments: ...


class State(Reader, Protocol):
    """Keeps what is given to it; all of that is copied. Thread-safe."""

    def together(self, is_last: bool = True) -> AbstractContextManager[None]:
        """What is changed within reaches the disk as one, for a part of it would make no sense to the next kubelet.

        With is_last=False the change is written together with a later one. If an exception leaves the block,
        nothing is changed. One at a time changes the state.

        DIVERGES (fault of Go): the memory that a pod is given, or that a container gives back, is written at once.
        Go: pkg/kubelet/cm/memorymanager/state/state_checkpoint.go, (*stateCheckpoint).SetMachineState: the machine and
        the blocks of each container are written one after the other.
        Why: a kubelet that is killed between two writes does not start again until somebody removes the file.
        Test: kubelet/cm/memorymanager/memory_manager_test.py:test_a_kubelet_that_dies_at_any_moment_starts_again,
        kubelet/cm/memorymanager/memory_manager_test.py:test_a_pod_is_written_once
        """
        ...

    def set_machine_state(self, node_map: NUMANodeMap) -> None: ...

    def set_memory_blocks(self, pod_uid: str, container_name: str, blocks: list[Block]) -> None: ...

    def set_memory_assignments(self, assignments: ContainerMemoryAssignments) -> None: ...

    def delete(self, pod_uid: str, container_name: str) -> None:
        """Forget what the container has."""
        ...

    def clear_state(self) -> None: ...
