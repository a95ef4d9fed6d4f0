"""Define the interface between the hint providers and the topology manager.

Go: pkg/kubelet/cm/topologymanager/topology_manager.go (HintProvider, Store, TopologyHint)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kubelet.cm.topologymanager.bitmask import BitMask
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet.cm.topologymanager.policy import Policy


@dataclass(frozen=True, slots=True)
class TopologyHint:
    """Name the NUMA nodes that an allocation would use; None means any nodes.

    A hint is preferred if no better one would be possible on an idle machine.
    """

    numa_node_affinity: BitMask | None = None
    preferred: bool = False

    def less_than(self, other: TopologyHint) -> bool:
        """Report whether this hint is better: preferred where the other is not, or else narrower.

        Both must name nodes.
        """
        if self.preferred != other.preferred:
            return self.preferred
        assert self.numa_node_affinity is not None and other.numa_node_affinity is not None
        return self.numa_node_affinity.is_narrower_than(other.numa_node_affinity)

    def __str__(self) -> str:
        affinity = "<nil>" if self.numa_node_affinity is None else self.numa_node_affinity
        return f"{{{affinity} {str(self.preferred).lower()}}}"


# Hints maps resources to the possible allocations. None means no preference; an empty list means that none is possible.
Hints = dict[str, list[TopologyHint] | None]


class HintProvider(Protocol):
    """Define a manager that allocates a kind of resource, and knows in advance which NUMA nodes can provide it.

    Go's interface also has AllocatePod, for its feature gate PodLevelResourceManagers, which is off.
    """

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> Hints:
        """Return the nodes that could provide the container's resources. Empty means no preference."""
        ...

    def get_pod_topology_hints(self, pod: v1.Pod) -> Hints:
        """Return the nodes that could provide the resources of all the pod's containers."""
        ...

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Allocate the container's resources on the nodes that the Store's get_affinity returns.

        Raise any error to reject the pod. An admission.Error provides the reason in the pod's status.
        """
        ...


class Store(Protocol):
    """Define where hint providers get the merged hints."""

    def get_affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        """Return the merged hint, or TopologyHint() for a container that was not admitted."""
        ...

    def get_policy(self) -> Policy: ...

    def name(self) -> str:
        """Return the scope: "container", "pod" or "none"."""
        ...
