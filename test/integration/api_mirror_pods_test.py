"""Test static pods of a node in a cluster: each has a mirror pod, which shows its state and controls nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from framework.apiserver import errors
from framework.cluster_node import ClusterNode
from framework.pod_history import Version, assert_history_monotonic
from framework.pods import pod, sleeper

NODE = "node"
USER = f"system:node:{NODE}"
MIRROR = "kubernetes.io/config.mirror"
HASH = "kubernetes.io/config.hash"
SOURCE = "kubernetes.io/config.source"


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    """Return a node whose kubelet syncs each pod, and so checks its mirror pod, more often than usual."""
    node = new_node(NODE, {"syncFrequency": "2s"})
    node.join()
    return node


@pytest.fixture(scope="module", autouse=True)
def tampered(node: ClusterNode) -> tuple[Version, int]:
    """Return a mirror pod, and the version at which another client overwrote its status.

    The fixture starts first, because the correction takes a while.
    """
    mirror = start(node, "tampered")
    written = node.patch(mirror.name, {"status": {"phase": "Pending", "containerStatuses": None}}, "status")
    return mirror, int(written["metadata"]["resourceVersion"])


def mirror_of(name: str) -> str:
    return f"{name}-{NODE}"


def start(node: ClusterNode, name: str, grace: int = 2) -> Version:
    """Write a manifest, and wait until the mirror pod shows that the pod runs."""
    node.write(pod(name, sleeper(), grace=grace))
    (running,) = node.wait_for_api_running(mirror_of(name))
    return running


def wait_for_new_mirror(node: ClusterNode, *old: Version) -> Version:
    """Wait until a new mirror pod has replaced these, which share a name, and shows that the pod runs."""
    uids = {each.uid for each in old}
    node.wait_for_api_pod(old[0].name, "a new mirror pod", lambda found: found.uid not in uids)
    # The kubelet sends the status of an unchanged pod together with another pod's changed status, or after ten seconds.
    # So another pod speeds this up.
    node.create({**pod("nudge", sleeper()), "metadata": {"generateName": "nudge-"}})
    return node.wait_for_api_pod(old[0].name, "running", lambda found: found.running and found.uid not in uids)


def static_uid(node: ClusterNode, name: str) -> str:
    """Return the UID by which the kubelet knows the static pod."""
    return str(node.pods()[name].json["metadata"]["uid"])


def assert_ran_once(node: ClusterNode, mirror: Version) -> None:
    """Check that the pod has had only the container that the mirror pod shows, and that nothing has stopped it."""
    assert node.container_ids(mirror.name) == [mirror.container_id()]
    assert len(node.calls(mirror.name, "RunPodSandbox")) == 1
    assert len(node.calls(mirror.name, "StartContainer")) == 1
    assert node.calls(mirror.name, "StopContainer") == []


def test_mirror_shows_the_static_pod(node: ClusterNode) -> None:
    mirror = start(node, "shown")

    annotations = mirror.json["metadata"]["annotations"]
    assert annotations[MIRROR] == annotations[HASH]
    assert annotations[SOURCE] == "file"
    api_node = node.api_object()
    assert api_node is not None
    (owner,) = mirror.json["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": NODE,
        "uid": api_node["metadata"]["uid"],
        "controller": True,
    }
    assert {"operator": "Exists", "effect": "NoExecute"} in mirror.json["spec"]["tolerations"]
    assert mirror.uid != static_uid(node, "shown")
    (call,) = node.calls(mirror.name, "RunPodSandbox")
    assert call.request.config.metadata.uid == static_uid(node, "shown")
    assert_ran_once(node, mirror)
    assert_history_monotonic(node.history.of(mirror.name))
    node.wait_for_condition("the mirror pod is counted", lambda: node.metric("kubelet_mirror_pods") >= 1)
    for step in ("pre_kubelet", "pre_registration", "registration", "post_registration"):
        assert node.metric(f"kubelet_node_startup_{step}_duration_seconds") > 0


def test_mirror_shows_what_becomes_of_the_static_pod(node: ClusterNode) -> None:
    mirror = start(node, "restarts")

    node.runtime.end_container(mirror.container_id(), 9)

    shown = node.wait_for_api_pod(mirror.name, "restarted", lambda found: found.running and found.restarts() == 1)
    assert shown.uid == mirror.uid
    assert shown.state(which="lastState")["exitCode"] == 9
    assert_history_monotonic(node.history.of(mirror.name))


def test_mirrors_that_are_deleted_come_again(node: ClusterNode) -> None:
    graces: dict[str, int | None] = {"deleted": None, "forced": 0, "in-time": 30}
    node.write_all(*(pod(name, sleeper()) for name in graces))
    old = node.wait_for_api_running(*map(mirror_of, graces))

    for name, grace in graces.items():
        node.delete(mirror_of(name), grace)

    for each in old:
        new = wait_for_new_mirror(node, each)
        assert new.container_id() == each.container_id()
        assert_ran_once(node, new)
        assert_history_monotonic(node.history.of(each.name))


def test_mirror_of_another_manifest_is_replaced(node: ClusterNode) -> None:
    """A mirror pod of another manifest is replaced.

    A kubelet finds such a mirror pod if the manifest changed while the kubelet was down.
    """
    old = start(node, "stale")
    annotations = {**old.json["metadata"]["annotations"], MIRROR: "stale"}
    with node.cluster.faults.status(500, verb="create", resource="pods", user=USER):
        node.delete(old.name, grace=0)
        metadata = {"name": old.name, "annotations": annotations}
        stale = node.create({**pod(old.name, sleeper("other")), "metadata": metadata})
        node.wait_until_gone(old.name, stale.uid)

    new = wait_for_new_mirror(node, old, stale)
    assert new.json["metadata"]["annotations"] == old.json["metadata"]["annotations"]
    assert [each["name"] for each in new.json["spec"]["containers"]] == ["main"]
    assert_ran_once(node, new)


def test_changed_manifest_gets_a_new_mirror(node: ClusterNode) -> None:
    old = start(node, "changed")
    static = static_uid(node, "changed")

    node.write(pod("changed", sleeper("renamed")))

    new = wait_for_new_mirror(node, old)
    assert new.container("renamed") and not new.container()
    assert new.json["metadata"]["annotations"][MIRROR] != old.json["metadata"]["annotations"][MIRROR]
    assert static_uid(node, "changed") != static
    assert node.container_ids(old.name) == [new.container_id("renamed")]
    assert_history_monotonic(node.history.of(old.name))


def test_removed_manifest_takes_its_mirror_with_it(node: ClusterNode) -> None:
    mirror = start(node, "removed", grace=5)

    node.remove("removed")

    node.wait_until_gone(mirror.name, mirror.uid)
    node.wait_for_condition("the container ended", lambda: not node.container_ids(mirror.name))
    # The runtime records a call only after it has responded.
    (stopped,) = node.wait_for_condition("a recorded stop", lambda: node.calls(mirror.name, "StopContainer"))
    assert stopped.request.timeout == 5
    assert len({each.uid for each in node.history.of(mirror.name)}) == 1
    assert_history_monotonic(node.history.of(mirror.name))


def test_mirror_that_is_deleted_while_the_pod_goes_does_not_come_again(node: ClusterNode) -> None:
    mirror = start(node, "going", grace=30)
    hang = node.hang("StopContainer", mirror.name)
    node.remove("going")
    node.wait_for_call_in(hang)

    try:
        node.delete(mirror.name, grace=0)
    except errors.ApiError as err:
        assert err.code == 404, "only the kubelet may have deleted it before"
    node.wait_until_gone(mirror.name)
    start(node, "after-going")

    assert node.history.latest(mirror.name) is None
    assert node.container_ids(mirror.name) == [mirror.container_id()]
    node.runtime.faults.remove(hang)
    node.wait_for_condition("the container ended", lambda: not node.container_ids(mirror.name))
    node.wait_for_condition("the kubelet forgets the pod", lambda: "going" not in node.pods())
    assert len({each.uid for each in node.history.of(mirror.name)}) == 1


def test_manifest_that_comes_back_while_the_pod_goes_gets_a_mirror_again(node: ClusterNode) -> None:
    old = start(node, "returns", grace=30)
    hang = node.hang("StopContainer", old.name)
    node.remove("returns")
    node.wait_for_call_in(hang)
    node.write(pod("returns", sleeper(), grace=30))
    node.wait_for_log("SyncLoop ADD", f"default/{old.name}", count=2)
    node.runtime.faults.remove(hang)

    new = node.wait_for_api_pod(
        old.name, "running again", lambda found: found.running and found.container_id() != old.container_id()
    )

    assert 'kubelet_restarted_pods_total{static="true"} 1\n' in node.get("/metrics")
    assert node.container_ids(old.name) == [new.container_id()]
    assert [call.method for call in node.calls(old.name, "StartContainer", "StopContainer")] == [
        "StartContainer",
        "StopContainer",
        "StartContainer",
    ]


def test_static_pods_run_while_their_mirrors_are_refused(node: ClusterNode) -> None:
    codes = {"refused": 403, "broken": 500, "busy": 429}
    with ExitStack() as stack:
        faults = [
            stack.enter_context(node.cluster.faults.status(code, verb="create", resource="pods", user=USER, times=3))
            for code in codes.values()
        ]
        node.write_all(*(pod(name, sleeper()) for name in codes))
        running = node.wait_for_running(*codes)
        node.wait_for_condition("the API server refuses mirror pods", lambda: faults[0].hits)

    mirrors = node.wait_for_api_running(*map(mirror_of, codes))
    for mirror, found in zip(mirrors, running, strict=True):
        assert mirror.container_id() == found.container_id()
        assert_ran_once(node, mirror)
        assert_history_monotonic(node.history.of(mirror.name))


def test_pod_that_has_the_name_of_a_mirror_is_another_pod(node: ClusterNode) -> None:
    other = node.create(pod(mirror_of("namesake"), sleeper()))
    node.wait_for_api_running(mirror_of("namesake"))

    node.write(pod("namesake", sleeper("static")))
    node.wait_for_condition("both pods run", lambda: len(node.container_ids(mirror_of("namesake"))) == 2)
    node.wait_for_log("Failed creating a mirror pod", mirror_of("namesake"))
    assert {each.uid for each in node.history.of(mirror_of("namesake"))} == {other.uid}
    node.delete(mirror_of("namesake"))
    node.wait_until_gone(mirror_of("namesake"), other.uid)

    mirror = wait_for_new_mirror(node, other)
    assert node.container_ids(mirror.name) == [mirror.container_id("static")]
    assert_history_monotonic(node.history.of(mirror.name))


def test_mirror_of_nothing_is_deleted_and_never_run(node: ClusterNode) -> None:
    manifest = pod("of-nothing", sleeper())
    manifest["metadata"]["annotations"] = {MIRROR: "hash", HASH: "hash", SOURCE: "file"}
    node.create(manifest)

    node.wait_until_gone("of-nothing")

    assert node.calls("of-nothing") == []


def test_status_of_a_mirror_that_another_wrote_is_put_right(node: ClusterNode, tampered: tuple[Version, int]) -> None:
    mirror, version = tampered

    after = node.wait_for_api_pod(mirror.name, "corrected", lambda found: found.version > version and found.running)

    assert (after.uid, after.phase, after.container_id()) == (mirror.uid, "Running", mirror.container_id())
    assert_ran_once(node, after)
