"""Choose the NUMA nodes that provide a pod's CPUs, memory and devices.

Hint providers, which are the managers of CPUs, memory and devices, return hints: the sets of nodes that could provide a
resource. The topology manager merges the hints according to its policy, admits or rejects the pod, and lets the
providers allocate on the nodes of the merged hint.

Go: pkg/kubelet/cm/topologymanager
"""

from kubelet.cm.topologymanager.errors import ERROR_TOPOLOGY_AFFINITY, TopologyAffinityError
from kubelet.cm.topologymanager.hints import HintProvider, Hints, Store, TopologyHint
from kubelet.cm.topologymanager.policy import Policy, is_alignment_guaranteed
from kubelet.cm.topologymanager.policy_none import POLICY_NONE
from kubelet.cm.topologymanager.scope import CONTAINER_TOPOLOGY_SCOPE, NONE_TOPOLOGY_SCOPE, POD_TOPOLOGY_SCOPE
from kubelet.cm.topologymanager.topology_manager import Manager

__all__ = [
    "CONTAINER_TOPOLOGY_SCOPE",
    "ERROR_TOPOLOGY_AFFINITY",
    "NONE_TOPOLOGY_SCOPE",
    "POD_TOPOLOGY_SCOPE",
    "POLICY_NONE",
    "HintProvider",
    "Hints",
    "Manager",
    "Policy",
    "Store",
    "TopologyAffinityError",
    "TopologyHint",
    "is_alignment_guaranteed",
]
