"""Memory and huge pages of NUMA nodes, given to the containers of guaranteed pods.

The container that has been given memory of some nodes is bound to these nodes (cpuset.mems); of how much there is
left of each node a file keeps count, so that a restarted kubelet goes on with it.

Go: pkg/kubelet/cm/memorymanager
"""

from kubelet.cm.memorymanager.memory_manager import Manager

__all__ = ["Manager"]
