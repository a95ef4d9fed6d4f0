"""Keep the resources of pods and their containers in memory and in a checkpoint.

Go: pkg/kubelet/allocation/state
"""

from kubelet.allocation.state.checkpoint import Checkpoint, PodResourceCheckpointInfo
from kubelet.allocation.state.state import PodResourceInfo, PodResourceInfoMap, Reader, State
from kubelet.allocation.state.state_checkpoint import NoopStateCheckpoint, StateCheckpoint, restore_state
from kubelet.allocation.state.state_mem import StateMemory

__all__ = [
    "Checkpoint",
    "NoopStateCheckpoint",
    "PodResourceCheckpointInfo",
    "PodResourceInfo",
    "PodResourceInfoMap",
    "Reader",
    "State",
    "StateCheckpoint",
    "StateMemory",
    "restore_state",
]
