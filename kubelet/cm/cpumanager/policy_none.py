"""Define the policy under which all containers share all CPUs.

Go: pkg/kubelet/cm/cpumanager/policy_none.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubelet.cm.cpumanager.state import State
from kubelet.cm.topologymanager import Hints
from pkg import klog
from pkg.api.core import v1
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet

if TYPE_CHECKING:
    from kubelet.cm.cpumanager.policy import Policy

POLICY_NONE = "none"


class NonePolicy:
    """Implement Policy."""

    def __init__(self, cpu_policy_options: Mapping[str, str]) -> None:
        """Raise ValueError if there are options, because this policy has none."""
        if cpu_policy_options:
            options = " ".join(f"{name}:{value}" for name, value in sorted(cpu_policy_options.items()))
            raise ValueError(f"None policy: received unsupported options=map[{options}]")

    def name(self) -> str:
        return POLICY_NONE

    def start(self, s: State) -> None:
        klog.info_s("None policy: Start")

    def allocate(self, s: State, pod: v1.Pod, container: v1.Container) -> None:
        return

    def remove_container(self, s: State, pod_uid: str, container_name: str) -> None:
        return

    def get_topology_hints(self, s: State, pod: v1.Pod, container: v1.Container) -> Hints:
        return {}

    def get_pod_topology_hints(self, s: State, pod: v1.Pod) -> Hints:
        return {}

    def get_allocatable_cpus(self, s: State) -> CPUSet:
        """Return no CPUs, because no container can have exclusive ones."""
        return cpuset.new()


if TYPE_CHECKING:

    def _is_policy(policy: NonePolicy) -> Policy:
        return policy
