"""Test the node object: its registration and updates, what the kubelet must not change in it, and two nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from framework.apiserver.cluster import Cluster
from framework.apiserver.interfaces import Object
from framework.cluster_node import ClusterNode, condition
from framework.node_history import NodeHistory
from framework.pods import pod, sleeper
from framework.waiting import wait_for

OFTEN = {"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s", "nodeLeaseDurationSeconds": 4}

TIMEOUT = 30.0

NewNode = Callable[..., ClusterNode]


@pytest.fixture(scope="module")
def node(new_node: NewNode) -> ClusterNode:
    """Return a node that reports often. Each test leaves it ready."""
    node = new_node("node", OFTEN)
    node.join()
    return node


def api(node: ClusterNode) -> Object:
    found = node.api_object()
    assert found is not None, f"there is no node {node.node}"
    return found


def change(node: ClusterNode, patch: Object, subresource: str = "") -> Object:
    return node.cluster.store.patch("nodes", node.node, patch, subresource=subresource)


def heartbeat(found: Object) -> str:
    (ready,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
    return str(ready["lastHeartbeatTime"])


def without_heartbeats(found: Object) -> Object:
    """Return the status without the heartbeat times, which every report changes."""
    conditions = [{**each, "lastHeartbeatTime": ""} for each in found["status"]["conditions"]]
    return {**found["status"], "conditions": conditions}


def wait_for_heartbeats(node: ClusterNode, count: int = 2) -> Object:
    """Wait until the kubelet has reported the node `count` more times, and return the node."""
    for _ in range(count):
        last = heartbeat(api(node))
        wait_for_later_heartbeat(node, last)
    return api(node)


def wait_for_later_heartbeat(node: ClusterNode, last: str) -> None:
    node.wait_for_condition("another heartbeat", lambda: heartbeat(api(node)) != last)


def lease(node: ClusterNode) -> Object | None:
    found = node.cluster.store.list("leases", "kube-node-lease")
    return next((each for each in found if each["metadata"]["name"] == node.node), None)


def test_what_others_say_of_the_node_stays(node: ClusterNode) -> None:
    """The kubelet keeps what others write: labels, annotations, taints, a cordon and conditions.

    A restart of the kubelet does not change this.
    """
    change(node, {"metadata": {"labels": {"mine": "1"}, "annotations": {"mine": "2"}}})
    change(node, {"spec": {"unschedulable": True, "taints": [{"key": "mine", "effect": "NoSchedule"}]}})
    change(node, {"status": {"conditions": [condition("Mine", "True")]}}, "status")

    def assert_kept(found: Object) -> None:
        assert found["metadata"]["labels"]["mine"] == "1" and found["metadata"]["annotations"]["mine"] == "2"
        assert found["spec"]["unschedulable"]
        assert "mine" in {each["key"] for each in found["spec"]["taints"]}
        assert "Mine" in {each["type"] for each in found["status"]["conditions"]}

    assert_kept(wait_for_heartbeats(node))
    node.wait_for_api_event(node.node, "NodeNotSchedulable")
    uid = api(node)["metadata"]["uid"]
    node.kill()
    last = heartbeat(api(node))
    node.spawn()
    wait_for_later_heartbeat(node, last)
    assert_kept(wait_for_heartbeats(node))
    assert api(node)["metadata"]["uid"] == uid
    change(node, {"spec": {"unschedulable": None, "taints": None}})
    node.wait_for_api_event(node.node, "NodeSchedulable")


def test_default_labels_are_put_right(node: ClusterNode) -> None:
    """The kubelet corrects the default labels of its node.

    It corrects the labels for the operating system and the architecture at once, and the hostname label when it
    registers again.
    """
    wrong = {"kubernetes.io/os": "plan9", "kubernetes.io/arch": None, "kubernetes.io/hostname": "other"}
    right = {key: api(node)["metadata"]["labels"][key] for key in wrong}
    change(node, {"metadata": {"labels": wrong}})

    def labels() -> dict[str, Any]:
        return {key: api(node)["metadata"]["labels"].get(key) for key in wrong}

    node.wait_for_condition(
        "the OS and architecture labels", lambda: labels() == {**right, "kubernetes.io/hostname": "other"}
    )
    node.kill()
    node.spawn()
    node.wait_for_condition("the hostname label", lambda: labels() == right)
    node.wait_until_ready()


def test_wrong_status_is_put_right(node: ClusterNode) -> None:
    right = api(node)["status"]["capacity"]
    change(node, {"status": {"capacity": {"cpu": "99", "memory": "1Ki"}}}, "status")
    node.wait_for_condition("the capacity is as before", lambda: api(node)["status"]["capacity"] == right)


def test_deleted_node_stays_away_until_the_kubelet_is_started_again(node: ClusterNode, cluster: Cluster) -> None:
    """A restarted kubelet registers a new node object with a new lease, and its pods keep running."""
    node.create(pod("stays", sleeper()))
    node.wait_for_api_running("stays")
    containers = node.container_ids("stays")
    node.wait_for_condition("the node's lease", lambda: owner(lease(node)) == api(node)["metadata"]["uid"])
    old = api(node)
    cluster.store.delete("nodes", node.node)
    node.wait_for_log("Unable to update node status", count=len(node.logged("Unable to update node status")) + 3)
    assert node.api_object() is None
    node.stop()
    # The garbage collector deletes the objects whose owner, the node, is gone.
    wait_for("the lease is collected", lambda: lease(node) is None, TIMEOUT)
    node.start()
    node.wait_until_ready()
    assert api(node)["metadata"]["uid"] != old["metadata"]["uid"]
    node.wait_for_condition("another lease", lambda: owner(lease(node)) == api(node)["metadata"]["uid"])
    assert node.container_ids("stays") == containers
    node.create(pod("comes", sleeper()))
    node.wait_for_api_running("comes", "stays")
    assert node.container_ids("stays") == containers


def owner(found: Object | None) -> str:
    references = (found or {"metadata": {}})["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(references[0]["uid"])


def test_heartbeats_come_while_others_are_held_back(node: ClusterNode, cluster: Cluster) -> None:
    """Heartbeats arrive while the API server rejects all writes of pod statuses and of many events."""
    for number in range(30):
        node.create(pod(f"flood-{number}", sleeper()))
    with (
        cluster.faults.status(429, retry_after=1, resource="pods", subresource="status") as pods,
        cluster.faults.status(429, retry_after=1, resource="events") as events,
    ):
        node.wait_for_condition("both faults are hit", lambda: pods.hits and events.hits)
        renewed = (lease(node) or {})["spec"]["renewTime"]
        wait_for_heartbeats(node, 3)
        node.wait_for_condition("the lease is renewed", lambda: (lease(node) or {})["spec"]["renewTime"] != renewed)
        assert node.ready()
    node.wait_for_api_running(*(f"flood-{number}" for number in range(30)), timeout=60)
    for number in range(30):
        node.delete(f"flood-{number}", grace=0)


def test_two_nodes_run_their_own_pods(node: ClusterNode, new_node: NewNode) -> None:
    """Each of two nodes runs its own pods and reports its own status. Flags give the second node labels and taints."""
    flags = {"node-labels": "zone=east,example.com/rack=7", "register-with-taints": "dedicated=tests:NoSchedule"}
    second = new_node("second", {"nodeStatusReportFrequency": "1h", "nodeStatusUpdateFrequency": "1s"}, flags)
    second.join()
    found = api(second)
    assert (found["metadata"]["labels"]["zone"], found["metadata"]["labels"]["example.com/rack"]) == ("east", "7")
    taint = {"key": "dedicated", "value": "tests", "effect": "NoSchedule"}
    assert taint in found["spec"]["taints"]
    for number in range(4):
        (node, second)[number % 2].create(pod(f"of-{number % 2}-{number}", sleeper()))
    node.wait_for_api_running("of-0-0", "of-0-2")
    second.wait_for_api_running("of-1-1", "of-1-3")

    def own(which: ClusterNode) -> set[str]:
        return {each.config.metadata.name for each in which.runtime.sandboxes if each.config.metadata.name[:3] == "of-"}

    assert (own(node), own(second)) == ({"of-0-0", "of-0-2"}, {"of-1-1", "of-1-3"})
    # While the second node's status does not change, the kubelet renews its lease only. It reports a change at once.
    past = NodeHistory(second.cluster.store)
    wait_for_heartbeats(node, 3)
    past.stop()
    for before, after in itertools.pairwise(past.of(second.node)):
        assert heartbeat(before) == heartbeat(after) or without_heartbeats(before) != without_heartbeats(after)
    second.runtime.network_ready = False
    second.wait_for_condition("the node is not ready", lambda: not second.ready())
    second.runtime.network_ready = True
    second.wait_until_ready()


def test_node_that_is_not_to_register(new_node: NewNode, cluster: Cluster) -> None:
    """With `register-node=false` the kubelet creates no node object, but uses one that another client creates."""
    shy = new_node("shy", OFTEN, {"register-node": "false"})
    shy.write(pod("static", sleeper()))
    shy.spawn()
    shy.wait_for_condition("the static pod runs", lambda: shy.container_ids("static-shy"))
    shy.wait_for_log("Unable to update node status")
    assert shy.api_object() is None
    assert not cluster.requests.calls(verb="create", resource="nodes", user="system:node:shy")
    cluster.store.create("nodes", {"metadata": {"name": "shy", "labels": {"made-by": "admin"}}})
    shy.wait_until_ready()
    assert api(shy)["metadata"]["labels"]["made-by"] == "admin"
    shy.create(pod("hers", sleeper()))
    shy.wait_for_api_running("hers")
