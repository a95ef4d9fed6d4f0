"""Makes room for critical pods by ending others.

Go: pkg/kubelet/preemption
"""

from kubelet.preemption.preemption import LONGEST_WAIT_FOR_VICTIM, CriticalPodAdmissionHandler

__all__ = ["LONGEST_WAIT_FOR_VICTIM", "CriticalPodAdmissionHandler"]
