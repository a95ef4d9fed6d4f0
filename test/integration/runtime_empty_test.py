"""Test runtime calls with an empty response: the kubelet and other pods survive, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.faults import Kind
from framework.runtime_faults import Round

KIND = Kind.EMPTY


@runtime_faults.cases(KIND)
def test_call_that_is_answered_by_nothing(runtime_round: Round, method: str) -> None:
    runtime_round.check(method)
