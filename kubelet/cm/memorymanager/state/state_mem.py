"""Keep the memory allocations in memory.

Go: pkg/kubelet/cm/memorymanager/state/state_mem.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubelet.cm.memorymanager.state.state import (
    Block,
    ContainerMemoryAssignments,
    NUMANodeMap,
    State,
    clone_assignments,
    clone_node_map,
)
from pkg import klog


class StateMemory:
    """Implement State in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # This lock guards both fields.
        self._assignments: ContainerMemoryAssignments = {}
        self._machine_state: NUMANodeMap = {}
        klog.v(2).info_s("Initializing new in-memory state store")

    def get_machine_state(self) -> NUMANodeMap:
        with self._lock:
            return clone_node_map(self._machine_state)

    def get_memory_blocks(self, pod_uid: str, container_name: str) -> list[Block] | None:
        with self._lock:
            blocks = self._assignments.get(pod_uid, {}).get(container_name)
            return None if blocks is None else list(blocks)

    def get_memory_assignments(self) -> ContainerMemoryAssignments:
        with self._lock:
            return clone_assignments(self._assignments)

    @contextmanager
    def together(self, is_last: bool = True) -> Iterator[None]:
        before = self.get_memory_assignments(), self.get_machine_state()
        try:
            yield
        except BaseException:
            with self._lock:
                self._assignments, self._machine_state = before
            raise

    def set_machine_state(self, node_map: NUMANodeMap) -> None:
        with self._lock:
            self._machine_state = clone_node_map(node_map)
        klog.info_s("Updated machine memory state")

    def set_memory_blocks(self, pod_uid: str, container_name: str, blocks: list[Block]) -> None:
        with self._lock:
            self._assignments.setdefault(pod_uid, {})[container_name] = list(blocks)
        klog.info_s("Updated memory state", podUID=pod_uid, containerName=container_name)

    def set_memory_assignments(self, assignments: ContainerMemoryAssignments) -> None:
        with self._lock:
            self._assignments = clone_assignments(assignments)
        klog.v(5).info_s("Updated Memory assignments", assignments=assignments)

    def delete(self, pod_uid: str, container_name: str) -> None:
        with self._lock:
            if (containers := self._assignments.get(pod_uid)) is None:
                return
            containers.pop(container_name, None)
            if not containers:
                del self._assignments[pod_uid]
        klog.v(2).info_s("Deleted memory assignment", podUID=pod_uid, containerName=container_name)

    def clear_state(self) -> None:
        with self._lock:
            self._machine_state = {}
            self._assignments = {}
        klog.v(2).info_s("Cleared state")


if TYPE_CHECKING:
    _: State = StateMemory()
