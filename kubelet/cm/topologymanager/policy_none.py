"""Define the policy that aligns nothing.

Go: pkg/kubelet/cm/topologymanager/policy_none.go
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.policy import MergedHint

POLICY_NONE = "none"


class NonePolicy:
    """Implement Policy: admit every pod, and name no nodes."""

    def name(self) -> str:
        return POLICY_NONE

    def merge(self, providers_hints: Sequence[Hints]) -> MergedHint:
        return MergedHint(TopologyHint(), admit=True)
