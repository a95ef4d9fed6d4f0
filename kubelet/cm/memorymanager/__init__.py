"""Allocate the memory and the huge pages of NUMA nodes to the containers of guaranteed pods.

A container with allocated memory is bound to the NUMA nodes of that memory (cpuset.mems). A file keeps the free memory
of each node and the allocations across a restart of the kubelet.

Go: pkg/kubelet/cm/memorymanager
"""

from kubelet.cm.memorymanager.memory_manager import Manager

__all__ = ["Manager"]
