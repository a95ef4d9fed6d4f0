"""Each call of the runtime fails: the kubelet lives, other pods go on, and the pod recovers."""

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
    with runtime_faults.node_with_bystander(tmp_path_factory.mktemp("errors"), cluster, history) as node:
        yield node


@runtime_faults.cases(Kind.ERROR)
def test_call_that_fails(node: ClusterNode, method: str, kind: Kind) -> None:
    Story(node, method, kind).run()


def test_each_call_has_its_cases() -> None:
    known = runtime_faults.TRIGGERS.keys() | runtime_faults.SELDOM | runtime_faults.UNUSED
    assert set(runtime_faults.methods()) == known
