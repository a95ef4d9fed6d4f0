"""Test how the kubelet explains API pods that are stuck because of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from framework.cluster_node import ClusterNode
from framework.pods import pod, sleeper


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    node = new_node("node")
    node.join()
    return node


def wait_for_cause(node: ClusterNode, name: str, *causes: str, timeout: float = 60) -> dict[str, Any]:
    """Wait until the kubelet names one of the causes for the pod, and return its explanation."""

    def look(_: object) -> dict[str, Any] | None:
        found = node.explained(name)
        return found if found is not None and found["cause"] in causes else None

    try:
        found = node.wait_for(f"{' or '.join(causes)} of {name}", look, timeout)
    except AssertionError as err:
        raise AssertionError(f"{node.explained(name)}") from err
    assert found is not None
    return found


def about_node(node: ClusterNode) -> dict[str, Any]:
    found = node.debug("/debug/syncloop.json")
    assert isinstance(found, dict)
    return found


def test_pod_runs_and_goes(node: ClusterNode) -> None:
    node.create(pod("runs", sleeper()))

    wait_for_cause(node, "runs", "Ready")

    found = node.debug(f"/debug/syncloop/explain?pod=default/{node.full_name('runs')}")["pods"][0]
    stages = [line["stage"] for line in found["timeline"]]
    for stage in ("seen", "admitted", "sandbox", "create", "start", "running", "ready"):
        assert stage in stages
    assert (found["source"], found["static"]) == ("api", False)
    node.delete("runs")
    node.wait_until_gone("runs")
    wait_for_cause(node, "runs", "Finished", "Removed")
    gone = node.debug(f"/debug/syncloop/explain?pod=default/{node.full_name('runs')}")["pods"][0]
    assert {"deleted", "stop"} <= {line["stage"] for line in gone["timeline"]}


def test_too_big_a_pod_is_refused(node: ClusterNode) -> None:
    node.create(pod("big", sleeper(resources={"requests": {"cpu": "9000"}})))
    found = wait_for_cause(node, "big", "OutOfcpu")
    assert found["sentence"].startswith("This node has rejected it permanently: Node didn't have enough resource: cpu")


def test_node_without_network(node: ClusterNode) -> None:
    node.runtime.network_ready = False
    try:
        node.wait_for("the node notices", lambda _: about_node(node)["node"]["state"] == "warning")
        node.create(pod("offline", sleeper()))
        found = wait_for_cause(node, "offline", "NetworkNotReady")
        assert found["sentence"].startswith("It waits for the node's pod network: ")
    finally:
        node.runtime.network_ready = True
    wait_for_cause(node, "offline", "Ready")


def test_runtime_that_is_not_ready(node: ClusterNode) -> None:
    node.runtime.runtime_ready = False
    try:
        node.wait_for("the node notices", lambda _: about_node(node)["node"]["state"] == "down")
        node.create(pod("waits", sleeper()))
        found = wait_for_cause(node, "waits", "NodeNotReady")
        shown = about_node(node)
        assert "the kubelet syncs no pods" in shown["node"]["sentence"]
        assert "not ready" in shown["loop"]["paused"]
        assert found["state"] == "stuck"
    finally:
        node.runtime.runtime_ready = True
    wait_for_cause(node, "waits", "Ready")
    assert about_node(node)["node"]["registered"]
