"""Record the CPUs of containers, in memory and on disk.

Go: pkg/kubelet/cm/cpumanager/state
"""

from kubelet.cm.cpumanager.state.state import ContainerCPUAssignments, Reader, State
from kubelet.cm.cpumanager.state.state_checkpoint import StateCheckpoint
from kubelet.cm.cpumanager.state.state_mem import StateMemory

__all__ = [
    "ContainerCPUAssignments",
    "Reader",
    "State",
    "StateCheckpoint",
    "StateMemory",
]
