"""Test runtime calls that fail: the kubelet and other pods survive, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.faults import Kind
from framework.runtime_faults import Round

from kubelet.cri.remote.fake.faults import cri_methods

KIND = Kind.ERROR


@runtime_faults.cases(KIND)
def test_call_that_fails(runtime_round: Round, method: str) -> None:
    runtime_round.check(method)


def test_each_call_has_its_cases() -> None:
    known = runtime_faults.TRIGGERS.keys() | runtime_faults.SELDOM | runtime_faults.UNUSED
    assert set(cri_methods()) == known
