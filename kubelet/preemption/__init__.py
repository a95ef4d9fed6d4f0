"""Makes room for critical pods by ending others.

Go: pkg/kubelet/preemption
"""

from kubelet.preemption.preemption import CriticalPodAdmissionHandler

__all__ = ["CriticalPodAdmissionHandler"]
