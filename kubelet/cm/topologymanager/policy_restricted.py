"""Define the policy that admits only pods with the best possible alignment.

Go: pkg/kubelet/cm/topologymanager/policy_restricted.go
"""

from __future__ import annotations

from kubelet.cm.topologymanager.hints import TopologyHint
from kubelet.cm.topologymanager.policy_best_effort import BestEffortPolicy

POLICY_RESTRICTED = "restricted"


class RestrictedPolicy(BestEffortPolicy):
    """Implement Policy, and admit a pod only if its hint is preferred."""

    def name(self) -> str:
        return POLICY_RESTRICTED

    def can_admit_pod_result(self, hint: TopologyHint) -> bool:
        return hint.preferred
