"""Each call of the runtime hangs until its deadline: the kubelet lives, other pods go on, and the pod recovers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework import runtime_faults
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode
from framework.pod_history import PodHistory
from framework.runtime_faults import Kind, Story


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, history: PodHistory) -> Iterator[ClusterNode]:
    with runtime_faults.node_with_bystander(tmp_path_factory.mktemp("hangs"), cluster, history) as node:
        yield node


@runtime_faults.cases(Kind.HANG)
def test_call_that_hangs(node: ClusterNode, method: str, kind: Kind) -> None:
    Story(node, method, kind).run()
