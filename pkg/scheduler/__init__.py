"""What the kubelet shares with the scheduler: the check whether a pod fits a node.

Go: pkg/scheduler
"""

from pkg.scheduler.eventhandlers import AdmissionResult, admission_check

__all__ = ["AdmissionResult", "admission_check"]
