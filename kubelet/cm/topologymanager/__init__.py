"""Which NUMA nodes a pod's processors, memory and devices come from.

Those who give out resources (hint providers: the managers of processors, memory and devices) tell with hints from
which sets of nodes they could; the manager merges the hints as its policy wants, admits the pod or not, and lets
the providers allocate on the nodes that it found.

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
