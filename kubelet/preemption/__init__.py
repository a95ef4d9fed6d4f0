"""Make room for critical pods by preempting other pods.

Go: pkg/kubelet/preemption
"""

from kubelet.preemption.preemption import LONGEST_WAIT_FOR_VICTIM, CriticalPodAdmissionHandler

__all__ = ["LONGEST_WAIT_FOR_VICTIM", "CriticalPodAdmissionHandler"]
