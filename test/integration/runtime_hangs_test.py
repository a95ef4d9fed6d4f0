"""Each call of the runtime hangs until its deadline: the kubelet lives, other pods go on, and the pod recovers."""

from __future__ import annotations

from framework import runtime_faults
from framework.cluster_node import ClusterNode
from framework.faults import Kind
from framework.runtime_faults import Story


@runtime_faults.cases(Kind.HANG)
def test_call_that_hangs(faulty_node: ClusterNode, method: str, kind: Kind) -> None:
    Story(faulty_node, method, kind).run()
