"""Define the policy that admits every pod with the best available alignment.

Go: pkg/kubelet/cm/topologymanager/policy_best_effort.go
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.numa_info import NUMAInfo
from kubelet.cm.topologymanager.policy import HintMerger, MergedHint, filter_providers_hints
from kubelet.cm.topologymanager.policy_options import PolicyOptions

POLICY_BEST_EFFORT = "best-effort"


class BestEffortPolicy:
    """Implement Policy, and admit every pod."""

    def __init__(self, numa_info: NUMAInfo, opts: PolicyOptions) -> None:
        self._numa_info = numa_info
        self._opts = opts

    def name(self) -> str:
        return POLICY_BEST_EFFORT

    def can_admit_pod_result(self, hint: TopologyHint) -> bool:
        return True

    def merge(self, providers_hints: Sequence[Hints]) -> MergedHint:
        filtered_hints = filter_providers_hints(providers_hints)
        best_hint = HintMerger(self._numa_info, filtered_hints, self.name(), self._opts).merge()
        return MergedHint(best_hint, self.can_admit_pod_result(best_hint))
