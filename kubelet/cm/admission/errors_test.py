"""Test the errors of allocations.

Go: pkg/kubelet/cm/admission/errors_test.go
"""

from __future__ import annotations

import pytest

from kubelet import lifecycle
from kubelet.cm import admission


class OutOfChocolate(admission.Error):
    """Signal an error with its own reason."""

    type = "OutOfChocolate"


def test_get_pod_admit_result_without_error() -> None:
    assert admission.get_pod_admit_result(None) == lifecycle.PodAdmitResult(admit=True)


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "as the cause of another"])
def test_get_pod_admit_result_with_a_reason(wrapped: bool) -> None:
    err: Exception = OutOfChocolate("none left")
    if wrapped:
        cause, err = err, ValueError("around it")
        err.__cause__ = cause
    want = lifecycle.PodAdmitResult(admit=False, reason="OutOfChocolate", message="none left")
    assert admission.get_pod_admit_result(err) == want


def test_get_pod_admit_result_of_any_other_error() -> None:
    got = admission.get_pod_admit_result(ValueError("no such thing"))
    want = "Allocate failed due to no such thing, which is unexpected"
    assert got == lifecycle.PodAdmitResult(admit=False, reason="UnexpectedAdmissionError", message=want)
