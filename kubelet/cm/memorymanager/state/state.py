"""Define the state of the memory of each NUMA node, and the containers' allocations.

Go: pkg/kubelet/cm/memorymanager/state/state.go
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec


class MemoryTable(msgspec.Struct):
    """Describe one kind of memory of a NUMA node, in bytes. `allocatable` is the sum of `free` and `reserved`."""

    total_mem_size: int = msgspec.field(default=0, name="total")
    system_reserved: int = msgspec.field(default=0, name="systemReserved")
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class NUMANodeState(msgspec.Struct):
    """Describe a NUMA node.

    `number_of_assignments` counts each kind of memory of each container. `cells` are the nodes that are used together
    with this one, including itself: a container with memory of several nodes uses exactly these nodes.
    """

    number_of_assignments: int = msgspec.field(default=0, name="numberOfAssignments")
    # The keys are resources such as "memory" and "hugepages-2Mi".
    memory_map: dict[str, MemoryTable] = msgspec.field(default_factory=dict, name="memoryMap")
    cells: list[int] = []


class Block(msgspec.Struct, frozen=True):
    """Describe allocated memory of one kind, in bytes, which these NUMA nodes provide together."""

    numa_affinity: tuple[int, ...] = msgspec.field(default=(), name="numaAffinity")
    type: str = ""
    size: int = 0


# The keys are the nodes' IDs.
NUMANodeMap = dict[int, NUMANodeState]
# The keys are the pod's UID and the container's name.
ContainerMemoryAssignments = dict[str, dict[str, list[Block]]]


def clone_node_map(node_map: NUMANodeMap) -> NUMANodeMap:
    """Return a copy that the caller may change."""
    return {
        node: NUMANodeState(
            state.number_of_assignments,
            {name: msgspec.structs.replace(table) for name, table in state.memory_map.items()},
            list(state.cells),
        )
        for node, state in node_map.items()
    }


def clone_assignments(assignments: ContainerMemoryAssignments) -> ContainerMemoryAssignments:
    """Return a copy that the caller may change; blocks are immutable."""
    return {pod: {name: list(blocks) for name, blocks in containers.items()} for pod, containers in assignments.items()}


class Reader(Protocol):
    """Define queries of the state. All results are copies."""

    def get_machine_state(self) -> NUMANodeMap: ...

    def get_memory_blocks(self, pod_uid: str, container_name: str) -> list[Block] | None:
        """Return the container's blocks, or None. A container whose memory is reused keeps blocks of size 0."""
        ...

    def get_memory_assignments(self) -> ContainerMemoryAssignments: ...


class State(Reader, Protocol):
    """Define changes of the state, which copies its arguments. All methods are thread-safe."""

    def together(self, is_last: bool = True) -> AbstractContextManager[None]:
        """Write the changes of the block to disk at once, at the end of the block.

        A part of the changes would be inconsistent for the next kubelet. With is_last=False they are written together
        with later ones. If an exception leaves the block, the changes are undone. Only one thread at a time may change
        the state.

        DIVERGES (fault of Go): the kubelet writes the memory that a pod gets, or that a container releases, at once.
        Go: pkg/kubelet/cm/memorymanager/state/state_checkpoint.go, (*stateCheckpoint).SetMachineState: it writes the
        machine and the blocks of each container one after the other.
        Why: if a kubelet is killed between two writes, it does not start again until an administrator removes the file.
        Test: kubelet/cm/memorymanager/memory_manager_test.py:test_a_kubelet_that_dies_at_any_moment_starts_again,
        kubelet/cm/memorymanager/memory_manager_test.py:test_a_pod_is_written_once
        """
        ...

    def set_machine_state(self, node_map: NUMANodeMap) -> None: ...

    def set_memory_blocks(self, pod_uid: str, container_name: str, blocks: list[Block]) -> None: ...

    def set_memory_assignments(self, assignments: ContainerMemoryAssignments) -> None: ...

    def delete(self, pod_uid: str, container_name: str) -> None:
        """Delete the container's allocation."""
        ...

    def clear_state(self) -> None: ...
