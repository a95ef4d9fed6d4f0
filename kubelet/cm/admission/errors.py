"""Define the errors of allocations, and the admission results for them.

Go: pkg/kubelet/cm/admission/errors.go
"""

from __future__ import annotations

from kubelet import lifecycle

ERROR_REASON_UNEXPECTED = "UnexpectedAdmissionError"


class Error(Exception):
    """Signal a failed allocation that has its own reason in the pod's status."""

    # `type` is the reason in the pod's status, a CamelCase word.
    type = ERROR_REASON_UNEXPECTED
    # If `wait` is true, the missing resource is expected soon, so the pod waits and is not rejected.
    wait = False


def get_pod_admit_result(err: BaseException | None) -> lifecycle.PodAdmitResult:
    """Return the admission result for an error, or for None. An Error may also be the cause of the error."""
    if err is None:
        return lifecycle.PodAdmitResult(admit=True)
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, Error):
            return lifecycle.PodAdmitResult(admit=False, reason=cause.type, message=str(cause), wait=cause.wait)
        cause = cause.__cause__
    message = f"Allocate failed due to {err}, which is unexpected"
    return lifecycle.PodAdmitResult(admit=False, reason=ERROR_REASON_UNEXPECTED, message=message)
