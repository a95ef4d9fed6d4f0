"""Decide on which CPUs containers run.

With the static policy, a container of a guaranteed pod gets exclusive CPUs if it requests an integer number of CPUs;
all other containers share the rest. A file keeps the assignments across a restart of the kubelet.

Go: pkg/kubelet/cm/cpumanager
"""

from kubelet.cm.cpumanager.cpu_manager import CPU_MANAGER_STATE_FILE_NAME, Manager
from kubelet.cm.cpumanager.policy import POLICY_STATIC
from kubelet.cm.cpumanager.policy_none import POLICY_NONE

__all__ = [
    "CPU_MANAGER_STATE_FILE_NAME",
    "POLICY_NONE",
    "POLICY_STATIC",
    "Manager",
]
