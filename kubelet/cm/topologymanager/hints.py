"""What those who give out resources and the topology manager say to each other.

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
    """The NUMA nodes that an allocation would use; None if any would do.

    It is preferred if there could be no better one on an idle machine.
    """

    numa_node_affinity: BitMask | None = None
    preferred: bool = False

    def less_than(self, other: TopologyHint) -> bool:
        """Is better: preferred where the other is not, or narrower. Both must name nodes."""
        if self.preferred != other.preferred:
            return self.preferred
        assert self.numa_node_affinity is not None and other.numa_node_affinity is not None
        return self.numa_node_affinity.is_narrower_than(other.numa_node_affinity)

    def __str__(self) -> str:
        affinity = "<nil>" if self.numa_node_affinity is None else self.numa_node_affinity
        return f"{{{affinity} {str(self.preferred).lower()}}}"


# By resource: the allocations that are possible. None: it does not matter; an empty list: none is possible.
Hints = dict[str, list[TopologyHint] | None]


class HintProvider(Protocol):
    """Gives out a kind of resource, and can tell beforehand on which NUMA nodes it could.

    Go's has AllocatePod too, for its gate PodLevelResourceManagers, which is off.
    """

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> Hints:
        """Where the container's resources could come from. Empty: there is nothing to choose."""
        ...

    def get_pod_topology_hints(self, pod: v1.Pod) -> Hints:
        """Where the resources of all its containers could come from."""
        ...

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Gives the container its resources, on the nodes that get_affinity of the Store now tells.

        Raises whatever says why not: the pod is rejected, with the reason of an admission.Error.
        """
        ...


class Store(Protocol):
    """Where hint providers ask what was decided."""

    def get_affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        """The merged hint; TopologyHint() for a container that was not admitted."""
        ...

    def get_policy(self) -> Policy: ...

    def name(self) -> str:
        """The scope: "container", "pod" or "none"."""
        ...
