"""No memory is given to anybody: the kernel does as it likes.

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
    """See Policy."""

    def name(self) -> str:
        return POLICY_TYPE_NONE

    def start(self, s: state.State) -> None:
        klog.info_s("Start")

    def allocate(self, s: state.State, pod: v1.Pod, container: v1.Container) -> None:
        """There is nothing to give."""

    def remove_container(self, s: state.State, pod_uid: str, container_name: str) -> None:
        """It had nothing."""

    def get_topology_hints(self, s: state.State, pod: v1.Pod, container: v1.Container) -> Hints:
        return {}

    def get_pod_topology_hints(self, s: state.State, pod: v1.Pod) -> Hints:
        return {}

    def get_allocatable_memory(self, s: state.State) -> list[state.Block]:
        return []


if TYPE_CHECKING:
    _: Policy = PolicyNone()
