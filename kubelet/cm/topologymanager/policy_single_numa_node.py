"""Define the policy that admits only pods whose resources can come from one NUMA node.

Go: pkg/kubelet/cm/topologymanager/policy_single_numa_node.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.numa_info import NUMAInfo
from kubelet.cm.topologymanager.policy import POLICY_SINGLE_NUMA_NODE, HintMerger, MergedHint, filter_providers_hints
from kubelet.cm.topologymanager.policy_options import PolicyOptions


class SingleNumaNodePolicy:
    """Implement Policy: admit a pod only if its hint is preferred, and ignore hints of several nodes."""

    def __init__(self, numa_info: NUMAInfo, opts: PolicyOptions) -> None:
        self._numa_info = numa_info
        self._opts = opts

    def name(self) -> str:
        return POLICY_SINGLE_NUMA_NODE

    def can_admit_pod_result(self, hint: TopologyHint) -> bool:
        return hint.preferred

    def merge(self, providers_hints: Sequence[Hints]) -> MergedHint:
        filtered_hints = filter_single_numa_hints(filter_providers_hints(providers_hints))
        best_hint = HintMerger(self._numa_info, filtered_hints, self.name(), self._opts).merge()
        if best_hint.numa_node_affinity == self._numa_info.default_affinity_mask():
            best_hint = TopologyHint(None, best_hint.preferred)
        return MergedHint(best_hint, self.can_admit_pod_result(best_hint))


def filter_single_numa_hints(all_resources_hints: Iterable[Iterable[TopologyHint]]) -> list[list[TopologyHint]]:
    """Return the hints that are preferred and name one node or none."""
    return [
        [
            hint
            for hint in hints
            if hint.preferred and (hint.numa_node_affinity is None or hint.numa_node_affinity.count() == 1)
        ]
        for hints in all_resources_hints
    ]
