"""Check whether a pod fits a node, with the scheduler's filters.

Go: pkg/scheduler
"""

from pkg.scheduler.eventhandlers import AdmissionResult, admission_check

__all__ = ["AdmissionResult", "admission_check"]
