"""Pods that come from the API server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from framework.cluster_node import ClusterNode
from framework.pod_history import assert_history_monotonic, assert_never_unready
from framework.pods import pod, sleeper


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    node = new_node("node")
    node.join()
    return node


def test_pod_runs_and_goes(node: ClusterNode) -> None:
    made = node.create(pod("plain", sleeper()))
    (running,) = node.wait_for_api_running("plain")
    assert running.uid == made.uid

    node.delete("plain")
    node.wait_until_gone("plain")

    assert node.container_ids("plain") == []
    assert_history_monotonic(node.history.of("plain"))
    assert_never_unready(node.history.of("plain"))
