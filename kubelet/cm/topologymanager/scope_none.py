"""Define the scope of the policy none.

Go: pkg/kubelet/cm/topologymanager/scope_none.go
"""

from __future__ import annotations

from kubelet import lifecycle
from kubelet.cm.topologymanager.policy_none import NonePolicy
from kubelet.cm.topologymanager.scope import NONE_TOPOLOGY_SCOPE, Scope
from pkg.api.core import v1


class NoneScope(Scope):
    """Admit pods without alignment."""

    def __init__(self) -> None:
        super().__init__(NONE_TOPOLOGY_SCOPE, NonePolicy())

    def admit(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        return self.admit_policy_none(pod)
