"""Why a pod is not admitted.

Go: pkg/kubelet/cm/topologymanager/topology_manager.go (TopologyAffinityError)
"""

from __future__ import annotations

from kubelet.cm import admission

ERROR_TOPOLOGY_AFFINITY = "TopologyAffinityError"


class TopologyAffinityError(admission.Error):
    """No set of NUMA nodes that the policy allows has all resources."""

    type = ERROR_TOPOLOGY_AFFINITY

    def __init__(self) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")
