"""What a policy of the CPU manager has to do.

Go: pkg/kubelet/cm/cpumanager/policy.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet.cm.cpumanager.state import State
from kubelet.cm.topologymanager import Hints
from pkg.api.core import v1
from pkg.utils.cpuset import CPUSet

# Here, so that the policy itself is loaded only where it is wanted.
POLICY_STATIC = "static"


class Policy(Protocol):
    """Gives processors to containers and takes them back; what it gave is in the state.

    Called by one thread at a time.
    """

    def name(self) -> str: ...

    def start(self, s: State) -> None:
        """Raises ValueError for a state that does not fit this machine or its configuration."""
        ...

    def allocate(self, s: State, pod: v1.Pod, container: v1.Container) -> None:
        """Once more does no harm. Raises ValueError or an admission.Error if there are not enough."""
        ...

    def remove_container(self, s: State, pod_uid: str, container_name: str) -> None:
        """Once more does no harm."""
        ...

    def get_topology_hints(self, s: State, pod: v1.Pod, container: v1.Container) -> Hints: ...

    def get_pod_topology_hints(self, s: State, pod: v1.Pod) -> Hints: ...

    def get_allocatable_cpus(self, s: State) -> CPUSet:
        """All that containers can have for themselves, given out or not."""
        ...
