"""Each call of the runtime is done and answered after its deadline: the kubelet lives, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.cluster_node import ClusterNode
from framework.faults import Kind
from framework.runtime_faults import Story


@runtime_faults.cases(Kind.LATE)
def test_call_that_is_answered_late(faulty_node: ClusterNode, method: str, kind: Kind) -> None:
    Story(faulty_node, method, kind).run()
