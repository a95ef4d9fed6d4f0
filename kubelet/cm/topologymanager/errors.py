"""Define the error for a pod whose resources cannot be aligned.

Go: pkg/kubelet/cm/topologymanager/topology_manager.go (TopologyAffinityError)
"""

from __future__ import annotations

from kubelet.cm import admission

ERROR_TOPOLOGY_AFFINITY = "TopologyAffinityError"


class TopologyAffinityError(admission.Error):
    """Signal that no set of NUMA nodes which the policy allows can provide all resources."""

    type = ERROR_TOPOLOGY_AFFINITY

    def __init__(self) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")
