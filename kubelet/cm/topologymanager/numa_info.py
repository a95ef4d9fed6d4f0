"""Describe the machine's NUMA nodes and the distances between them.

Go: pkg/kubelet/cm/topologymanager/numa_info.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubelet.cm.topologymanager.bitmask import BitMask
from kubelet.cm.topologymanager.policy_options import PolicyOptions

if TYPE_CHECKING:
    from kubelet.cadvisor.info import v1 as cadvisorapi


class NUMADistances(dict[int, Sequence[int]]):
    """Map each node to its distances to all nodes as the firmware reports them; 10 is the node itself."""

    def calculate_average_for(self, mask: BitMask) -> float:
        """Return the mean distance over all pairs of the nodes, including each node with itself; 0 for no nodes."""
        nodes = mask.get_bits()
        if not nodes:
            return 0.0
        return sum(self[one][other] for one in nodes for other in nodes) / len(nodes) ** 2


class NUMAInfo:
    """Compare sets of NUMA nodes."""

    def __init__(self, topology: Sequence[cadvisorapi.Node], opts: PolicyOptions) -> None:
        """Raise ValueError if distances are needed and unknown."""
        self.nodes = [node.id for node in topology]
        self.numa_distances = NUMADistances()
        for node in topology:
            if opts.prefer_closest_numa and not node.distances:
                raise ValueError("error getting NUMA distances from cadvisor")
            self.numa_distances[node.id] = node.distances if opts.prefer_closest_numa else ()

    def narrowest(self, one: BitMask, other: BitMask) -> BitMask:
        """Return the mask with fewer nodes; with equally many, the one with lower IDs."""
        return one if one.is_narrower_than(other) else other

    def closest(self, one: BitMask, other: BitMask) -> BitMask:
        """Return the mask with fewer nodes; with equally many, the one whose nodes are closer to each other."""
        if one.count() != other.count():
            return self.narrowest(one, other)
        distance = self.numa_distances.calculate_average_for(one)
        others = self.numa_distances.calculate_average_for(other)
        if distance == others:
            return one if one.is_less_than(other) else other
        return one if distance < others else other

    def default_affinity_mask(self) -> BitMask:
        """Return the mask of all nodes."""
        return BitMask(*self.nodes)
