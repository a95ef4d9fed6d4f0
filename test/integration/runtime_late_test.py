"""Test runtime calls that succeed only after their deadline: the kubelet survives, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.faults import Kind
from framework.runtime_faults import Round

KIND = Kind.LATE


@runtime_faults.cases(KIND)
def test_call_that_is_answered_late(runtime_round: Round, method: str) -> None:
    runtime_round.check(method)
