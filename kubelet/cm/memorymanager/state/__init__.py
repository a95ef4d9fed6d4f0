"""Record the memory manager's allocations, in memory and in a checkpoint.

Go: pkg/kubelet/cm/memorymanager/state
"""

from kubelet.cm.memorymanager.state.checkpoint import MemoryManagerCheckpoint
from kubelet.cm.memorymanager.state.state import (
    Block,
    ContainerMemoryAssignments,
    MemoryTable,
    NUMANodeMap,
    NUMANodeState,
    Reader,
    State,
    clone_assignments,
    clone_node_map,
)
from kubelet.cm.memorymanager.state.state_checkpoint import StateCheckpoint
from kubelet.cm.memorymanager.state.state_mem import StateMemory

__all__ = [
    "Block",
    "ContainerMemoryAssignments",
    "MemoryManagerCheckpoint",
    "MemoryTable",
    "NUMANodeMap",
    "NUMANodeState",
    "Reader",
    "State",
    "StateCheckpoint",
    "StateMemory",
    "clone_assignments",
    "clone_node_map",
]
