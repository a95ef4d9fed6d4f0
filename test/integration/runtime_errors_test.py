"""Each call of the runtime fails: the kubelet lives, other pods go on, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.cluster_node import ClusterNode
from framework.faults import Kind
from framework.runtime_faults import Story


@runtime_faults.cases(Kind.ERROR)
def test_call_that_fails(faulty_node: ClusterNode, method: str, kind: Kind) -> None:
    Story(faulty_node, method, kind).run()


def test_each_call_has_its_cases() -> None:
    known = runtime_faults.TRIGGERS.keys() | runtime_faults.SELDOM | runtime_faults.UNUSED
    assert set(runtime_faults.methods()) == known
