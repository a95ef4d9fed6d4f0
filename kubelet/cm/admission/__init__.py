"""Define the results for pods whose resources cannot be allocated.

Go: pkg/kubelet/cm/admission
"""

from kubelet.cm.admission.errors import ERROR_REASON_UNEXPECTED, Error, get_pod_admit_result

__all__ = [
    "ERROR_REASON_UNEXPECTED",
    "Error",
    "get_pod_admit_result",
]
