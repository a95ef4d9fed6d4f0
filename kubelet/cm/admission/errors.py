"""Errors of allocations, and the answer that admission gives to them.

Go: pkg/kubelet/cm/admission/errors.go
"""

from __future__ import annotations

from kubelet import lifecycle

ERROR_REASON_UNEXPECTED = "UnexpectedAdmissionError"


class Error(Exception):
    """An allocation that failed for a reason of which a pod's status has a word of its own."""

    # The reason in the pod's status: one CamelCase word.
    type = ERROR_REASON_UNEXPECTED
    # Whether what is missing is expected soon, so that the pod is not turned away.
    wait = False


def get_pod_admit_result(err: BaseException | None) -> lifecycle.PodAdmitResult:
    """Admits the pod if there is no error. An Error may also be the cause of the one that is given."""
    if err is None:
        return lifecycle.PodAdmitResult(admit=True)
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, Error):
            return lifecycle.PodAdmitResult(admit=False, reason=cause.type, message=str(cause), wait=cause.wait)
        cause = cause.__cause__
    message = f"Allocate failed due to {err}, which is unexpected"
    return lifecycle.PodAdmitResult(admit=False, reason=ERROR_REASON_UNEXPECTED, message=message)
