"""Define the policy that allocates no memory and leaves the choice of NUMA nodes to the kernel.

Go: pkg/kubelet/cm/memorymanager/policy_none.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet.cm.memorymanager import state
from pkg import klog
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet.cm.memorymanager.policy import Policy
    from kubelet.cm.topologymanager import Hints

POLICY_TYPE_NONE = "None"


class PolicyNone:
    """Implement Policy."""

    def name(self) -> str:
        return POLICY_TYPE_NONE

    def start(self, s: state.State) -> None:
        klog.info_s("Start")

    def allocate(self, s: state.State, pod: v1.Pod, container: v1.Container) -> None:
        """Do nothing, because this policy allocates no memory."""

    def remove_container(self, s: state.State, pod_uid: str, container_name: str) -> None:
        """Do nothing, because no container has allocated memory."""

    def get_topology_hints(self, s: state.State, pod: v1.Pod, container: v1.Container) -> Hints:
        return {}

    def get_pod_topology_hints(self, s: state.State, pod: v1.Pod) -> Hints:
        return {}

    def get_allocatable_memory(self, s: state.State) -> list[state.Block]:
        return []


if TYPE_CHECKING:
    _: Policy = PolicyNone()
