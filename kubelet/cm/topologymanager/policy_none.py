"""The policy that does not care.

Go: pkg/kubelet/cm/topologymanager/policy_none.go
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.policy import MergedHint

POLICY_NONE = "none"


class NonePolicy:
    """Admits every pod and names no nodes. See Policy."""

    def name(self) -> str:
        return POLICY_NONE

    def merge(self, providers_hints: Sequence[Hints]) -> MergedHint:
        return MergedHint(TopologyHint(), admit=True)
