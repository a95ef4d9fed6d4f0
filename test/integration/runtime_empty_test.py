"""Each call of the runtime is answered by an empty message: the kubelet lives, others go on, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.cluster_node import ClusterNode
from framework.faults import Kind
from framework.runtime_faults import Story


@runtime_faults.cases(Kind.EMPTY)
def test_call_that_is_answered_by_nothing(faulty_node: ClusterNode, method: str, kind: Kind) -> None:
    Story(faulty_node, method, kind).run()
