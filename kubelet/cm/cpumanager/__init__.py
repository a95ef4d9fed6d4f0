"""Which processors containers run on.

A container of a guaranteed pod that requests whole processors can have them for itself (the static policy); all
others share the rest. What was given out is in a file, so that it is still so after a restart of the kubelet.

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
