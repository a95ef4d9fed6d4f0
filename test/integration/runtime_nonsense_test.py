"""Test runtime calls with a nonsensical response: the kubelet and other pods survive, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.faults import Kind
from framework.runtime_faults import Round

KIND = Kind.NONSENSE


@runtime_faults.cases(KIND)
def test_call_that_is_answered_by_nonsense(runtime_round: Round, method: str) -> None:
    runtime_round.check(method)
