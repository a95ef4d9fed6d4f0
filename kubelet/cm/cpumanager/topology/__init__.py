"""Describe how CPUs form cores, caches, NUMA nodes and sockets.

Go: pkg/kubelet/cm/cpumanager/topology
"""

from kubelet.cm.cpumanager.topology.alignment import Alignment, Allocation
from kubelet.cm.cpumanager.topology.topology import CPUDetails, CPUInfo, CPUTopology, discover

__all__ = [
    "Alignment",
    "Allocation",
    "CPUDetails",
    "CPUInfo",
    "CPUTopology",
    "discover",
]
