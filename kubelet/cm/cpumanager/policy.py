"""Define what a policy of the CPU manager does.

Go: pkg/kubelet/cm/cpumanager/policy.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet.cm.cpumanager.state import State
from kubelet.cm.topologymanager import Hints
from pkg.api.core import v1
from pkg.utils.cpuset import CPUSet

# The constant is here, so that the policy's module is loaded only where it is needed.
POLICY_STATIC = "static"


class Policy(Protocol):
    """Define how CPUs are assigned to containers and released. The state holds the assignments.

    Only one thread at a time may call a policy.
    """

    def name(self) -> str: ...

    def start(self, s: State) -> None:
        """Check the state. Raise ValueError if it does not fit this machine or its configuration."""
        ...

    def allocate(self, s: State, pod: v1.Pod, container: v1.Container) -> None:
        """Assign CPUs to a container; repeated calls do no harm.

        Raise ValueError or an admission.Error if there are not enough.
        """
        ...

    def remove_container(self, s: State, pod_uid: str, container_name: str) -> None:
        """Release a container's CPUs; repeated calls do no harm."""
        ...

    def get_topology_hints(self, s: State, pod: v1.Pod, container: v1.Container) -> Hints: ...

    def get_pod_topology_hints(self, s: State, pod: v1.Pod) -> Hints: ...

    def get_allocatable_cpus(self, s: State) -> CPUSet:
        """Return all CPUs that containers can have exclusively, whether assigned or not."""
        ...
