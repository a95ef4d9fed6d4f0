"""Test the deletion of the API server's pods: graceful, faster, forced, and when something prevents it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.apiserver import Request
from framework.cluster_node import ClusterNode
from framework.pod_history import Version, assert_history_monotonic
from framework.pods import pod, shell, sleeper

from kubelet.cri.remote import fake

NODE = "node"
USER = f"system:node:{NODE}"


@dataclass(frozen=True)
class Deletion:
    """Record a call in which the kubelet deletes a pod, and what the node still had of the pod at that moment."""

    name: str
    options: dict[str, Any]
    code: int
    containers: list[str]
    volumes: list[str]


class Deletions:
    """Record the kubelet's deletions.

    An instance replaces the server's audit log and forwards each request to that log.
    """

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._found: list[Deletion] = []
        self._log = node.cluster.server.audit
        node.cluster.server.audit = self._note

    def _note(self, request: Request, code: int) -> None:
        if self._log is not None:
            self._log(request, code)
        if (request.verb, request.resource) != ("delete", "pods"):
            return
        assert request.user.name == USER
        uid = self._node.history.of(request.name)[-1].uid
        volumes = self._node.root_dir / "pods" / uid / "volumes"
        found = Deletion(
            request.name,
            json.loads(request.body),
            code,
            self._node.container_ids(request.name),
            [str(each) for each in volumes.glob("*/*")],
        )
        with self._lock:
            self._found.append(found)

    def of(self, name: str) -> list[Deletion]:
        with self._lock:
            return [each for each in self._found if each.name == name]

    def wait_for(self, name: str) -> Deletion:
        """Wait for the successful deletion. The server records a call only after it has sent the response."""

        def look() -> list[Deletion]:
            return [each for each in self.of(name) if each.code == 200]

        (found,) = self._node.wait_for_condition(f"the recorded deletion of {name}", look)
        return found


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    node = new_node(NODE)
    node.join()
    return node


@pytest.fixture(scope="module")
def deletions(node: ClusterNode) -> Deletions:
    return Deletions(node)


@pytest.fixture(scope="module")
def scratch() -> dict[str, Any]:
    """Return the part of a pod's spec that declares a volume."""
    return {"volumes": [{"name": "scratch", "emptyDir": {}}]}


def mounted() -> dict[str, Any]:
    return sleeper(volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])


def stop_timeouts(node: ClusterNode, name: str) -> list[int]:
    """List the timeouts, in seconds, of the calls that stop the pod's containers."""
    return [call.request.timeout for call in node.calls(name, "StopContainer")]


def assert_stopped_within(node: ClusterNode, name: str, *timeouts: int) -> None:
    """Wait for as many stops as there are timeouts, and compare their timeouts.

    The runtime records a call when the call ends, and a call that the kubelet abandoned may end after all others.
    """
    node.wait_for_condition(f"the stops of {name}", lambda: len(stop_timeouts(node, name)) >= len(timeouts))
    assert stop_timeouts(node, name) == list(timeouts)


def wait_until_forgotten(node: ClusterNode, name: str, uid: str) -> None:
    """Wait until the node has neither containers nor files of the pod, and the kubelet has forgotten the pod."""
    node.wait_for_condition(f"the containers of {name} have ended", lambda: not node.container_ids(name))
    node.wait_for_condition(f"the directory of {name} is gone", lambda: uid not in node.pod_directories())
    node.wait_for_condition(f"the kubelet has forgotten pod {name}", lambda: name not in node.pods())


STUCK = ("kill-fails", "stop-hangs", "sandbox-fails")
FAILING_CALLS = ("get-fails", "patch-fails", "delete-fails")


@pytest.fixture(scope="module", autouse=True)
def obstructed(node: ClusterNode, deletions: Deletions, scratch: dict[str, Any]) -> Iterator[list[Version]]:
    """Yield the pods whose deletion fails at first, as the pods were before their deletion.

    The kubelet retries such a deletion after ten seconds or more. So these pods come first, and the other tests run
    while the kubelet waits.
    """
    for name in (*STUCK, *FAILING_CALLS):
        node.create(pod(name, mounted(), **scratch))
    running = node.wait_for_api_running(*STUCK, *FAILING_CALLS)
    stuck = [
        node.runtime.faults.fail("*", "out of order", sandbox="kill-fails", match=_is_stop),
        node.hang("StopContainer", "stop-hangs"),
        node.runtime.faults.fail("StopPodSandbox", "out of order", sandbox="sandbox-fails"),
    ]
    with ExitStack() as failing_calls:
        for name in FAILING_CALLS:
            verb = name.partition("-")[0]
            failing_calls.enter_context(
                node.cluster.faults.status(500, verb=verb, resource="pods", name=name, user=USER, times=2)
            )
        for name in (*STUCK, *FAILING_CALLS):
            node.delete(name)
        node.wait_for_condition("each fault is hit", lambda: all(fault.hits for fault in stuck))
        node.create(pod("beside-stuck", sleeper()))
        node.wait_for_api_running("beside-stuck")
        for name in STUCK:
            found = node.history.latest(name)
            assert found is not None and found.deleted and found.phase == "Running"
            assert deletions.of(name) == []
        for fault in stuck:
            node.runtime.faults.remove(fault)
        yield running


def _is_stop(request: object) -> bool:
    return isinstance(request, (runtimeapi.StopContainerRequest, runtimeapi.StopPodSandboxRequest))


# --- Graceful deletion ------------------------------------------------------------------------------


def test_deleted_pod_goes_in_its_grace_and_then_its_object(
    node: ClusterNode, deletions: Deletions, scratch: dict[str, Any]
) -> None:
    node.create(pod("graceful", mounted(), sleeper("other"), grace=7, **scratch))
    (running,) = node.wait_for_api_running("graceful")

    node.delete("graceful")

    last = node.wait_until_gone("graceful")
    assert (last.phase, last.grace) == ("Failed", 0)
    assert [each["state"]["terminated"]["exitCode"] for each in last.statuses.values()] == [143, 143]
    assert not last.ready
    assert stop_timeouts(node, "graceful") == [7, 7]
    deletion = deletions.wait_for("graceful")
    assert deletion.options["gracePeriodSeconds"] == 0
    assert deletion.options["preconditions"] == {"uid": running.uid}
    assert (deletion.containers, deletion.volumes) == ([], [])
    asked = [each for each in node.history.of("graceful") if each.deleted]
    assert asked[0].state().get("is") == "running" and asked[0].grace == 7
    node.wait_for_api_event("graceful", "Killing", "Stopping container main")
    assert_history_monotonic(node.history.of("graceful"))
    wait_until_forgotten(node, "graceful", running.uid)


def test_grace_gets_shorter_and_never_longer(node: ClusterNode) -> None:
    stubborn = fake.Behaviour(ignore_sigterm=True)
    node.runtime.behaviours.add(stubborn, pod="shortened")
    node.create(pod("shortened", sleeper(), grace=30))
    node.wait_for_api_running("shortened")
    node.delete("shortened", grace=300)  # The first deletion may set a longer grace period than the pod's own.
    node.wait_for_condition("the first stop", lambda: node.runtime.sleeping)
    node.delete("shortened", grace=600)
    node.wait_for_log("SyncLoop DELETE", "default/shortened")

    node.delete("shortened", grace=2)

    last = node.wait_until_gone("shortened")
    assert last.state()["exitCode"] == 137
    graces = [each.grace for each in node.history.of("shortened") if each.grace is not None]
    assert graces == sorted(graces, reverse=True) and graces[0] == 300
    assert_stopped_within(node, "shortened", 300, 2)
    assert_history_monotonic(node.history.of("shortened"))


def test_finalizer_keeps_the_object_and_not_the_containers(node: ClusterNode, deletions: Deletions) -> None:
    manifest = pod("finalized", sleeper())
    manifest["metadata"]["finalizers"] = ["example.org/wait"]
    node.create(manifest)
    (running,) = node.wait_for_api_running("finalized")

    node.delete("finalized")

    node.wait_for_condition("the kubelet has deleted the pod", lambda: deletions.of("finalized"))
    node.create(pod("after-finalized", sleeper()))
    node.wait_for_api_running("after-finalized")
    found = node.history.latest("finalized")
    assert found is not None and found.phase == "Failed"
    assert (node.container_ids("finalized"), len(node.calls("finalized", "StartContainer"))) == ([], 1)
    node.patch("finalized", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/wait"]}})
    node.wait_until_gone("finalized")
    wait_until_forgotten(node, "finalized", running.uid)
    assert_history_monotonic(node.history.of("finalized"))


# --- Forced deletion --------------------------------------------------------------------------------


def test_forced_deletion_leaves_the_containers_two_seconds(node: ClusterNode, scratch: dict[str, Any]) -> None:
    """A forced deletion removes the object at once, and the runtime gets the shortest grace period.

    The kubelet can no longer report how the pod ends.
    """
    node.create(pod("forced", mounted(), grace=6, **scratch))
    (running,) = node.wait_for_api_running("forced")

    node.delete("forced", grace=0)

    wait_until_forgotten(node, "forced", running.uid)
    last = node.history.of("forced")[-1]
    assert (last.type, last.running, last.grace) == ("DELETED", True, 0)
    node.wait_for_log("SyncLoop REMOVE", "default/forced")
    assert stop_timeouts(node, "forced") == [2]


def test_pod_that_is_not_there_any_more_keeps_its_own_grace(node: ClusterNode, scratch: dict[str, Any]) -> None:
    """A pod that vanishes keeps its own grace period, because no deletion gave it another one."""
    node.create(pod("vanished", mounted(), grace=6, **scratch))
    (running,) = node.wait_for_api_running("vanished")

    with node.unseen():
        node.delete("vanished", grace=0)

    wait_until_forgotten(node, "vanished", running.uid)
    assert stop_timeouts(node, "vanished") == [6]


def test_forced_deletion_of_a_pod_that_is_going(node: ClusterNode) -> None:
    node.create(pod("impatient", sleeper(), grace=30))
    (running,) = node.wait_for_api_running("impatient")
    hang = node.hang("StopContainer", "impatient")
    node.delete("impatient")
    node.wait_for_call_in(hang)

    node.delete("impatient", grace=0)

    node.wait_for_log("SyncLoop REMOVE", "default/impatient")
    node.wait_for_condition("the next stop", lambda: hang.hits == 2)
    assert node.container_ids("impatient") == [running.container_id()]
    assert node.calls("impatient", "StopPodSandbox") == []
    node.runtime.faults.remove(hang)
    wait_until_forgotten(node, "impatient", running.uid)
    assert_stopped_within(node, "impatient", 30, 2)


def test_new_pod_of_the_same_name_while_the_old_one_goes(node: ClusterNode, scratch: dict[str, Any]) -> None:
    node.create(pod("again", mounted(), grace=30, **scratch))
    (old,) = node.wait_for_api_running("again")
    hang = node.hang("StopContainer", "again")
    node.delete("again")
    node.wait_for_call_in(hang)
    node.delete("again", grace=0)

    uid = node.create(pod("again", mounted(), **scratch)).uid

    assert uid != old.uid
    new = node.wait_for_api_pod(
        "again", "is running with its new UID", lambda found: found.uid == uid and found.running
    )
    assert sorted(node.container_ids("again")) == sorted([old.container_id(), new.container_id()])
    node.runtime.faults.remove(hang)
    node.wait_for_condition(
        "the old incarnation's containers have ended", lambda: node.container_ids("again") == [new.container_id()]
    )
    node.wait_for_condition("the old incarnation's directory is gone", lambda: old.uid not in node.pod_directories())
    found = node.history.latest("again")
    assert found is not None and found.running
    assert (found.uid, found.restarts(), found.container_id()) == (new.uid, 0, new.container_id())
    assert new.uid in node.pod_directories()
    assert_history_monotonic(node.history.of("again"))
    node.delete("again")
    node.wait_until_gone("again", new.uid)


def test_pod_that_has_ended_goes_at_once(node: ClusterNode) -> None:
    node.create(pod("ended", shell("exit 0"), restartPolicy="Never"))
    ended = node.wait_for_api_pod("ended", "ended", lambda found: found.phase == "Succeeded")

    node.delete("ended")

    node.wait_until_gone("ended")
    wait_until_forgotten(node, "ended", ended.uid)
    assert_history_monotonic(node.history.of("ended"))


def test_pod_without_a_node_goes_without_the_kubelet(node: ClusterNode, deletions: Deletions) -> None:
    node.create(pod("unscheduled", sleeper(), nodeName=None, nodeSelector={"no": "such-node"}))

    node.delete("unscheduled")

    node.wait_until_gone("unscheduled")
    assert (node.calls("unscheduled"), deletions.of("unscheduled")) == ([], [])


def test_pod_that_is_to_go_when_first_seen_is_never_started(node: ClusterNode, deletions: Deletions) -> None:
    with node.unseen():
        node.create(pod("stillborn", sleeper()))
        node.delete("stillborn")
        assert node.cluster.store.get("pods", "stillborn", "default")["metadata"]["deletionTimestamp"]

    last = node.wait_until_gone("stillborn")

    assert node.calls("stillborn", "RunPodSandbox", "CreateContainer") == []
    assert last.phase == "Failed"
    deletions.wait_for("stillborn")
    assert_history_monotonic(node.history.of("stillborn"))


# --- Deletion before the pod runs -------------------------------------------------------------------

FAILING = ("RunPodSandbox", "CreateContainer", "StartContainer")


@pytest.fixture(scope="module")
def unborn(node: ClusterNode) -> Iterator[dict[str, str]]:
    """Yield the UIDs, by name, of pods that were deleted before they ran.

    The fixture deletes all of them at once, because each takes a while.
    """
    faults = [node.runtime.faults.fail(method, "out of order", sandbox=f"fails-{method.lower()}") for method in FAILING]
    missing = [{"name": "scratch", "hostPath": {"path": "/nowhere/at/all", "type": "Directory"}}]
    hang = node.runtime.faults.hang("PullImage")
    manifests = [
        pod("pulling", {"name": "main", "image": "example.org/large:1"}),
        pod("unmountable", mounted(), volumes=missing),
        pod("crashing", shell("exit 5")),
        *(pod(fault.sandbox, sleeper()) for fault in faults),
    ]
    uids = {manifest["metadata"]["name"]: node.create(manifest).uid for manifest in manifests}
    node.wait_for_call_in(hang)
    node.wait_for_condition("failed calls", lambda: all(fault.hits for fault in faults))
    node.wait_for_api_event("unmountable", "FailedMount", "/nowhere/at/all is not a directory")
    node.wait_for_api_event("crashing", "BackOff", "Back-off restarting failed container main")
    for name in uids:
        node.delete(name)
    # The kubelet does not cancel a pull. The pod terminates only when its image has arrived.
    node.wait_until_gone("unmountable")
    assert node.history.latest("pulling") is not None
    node.runtime.faults.remove(hang)
    yield uids
    for fault in faults:
        node.runtime.faults.remove(fault)


@pytest.mark.parametrize("name", ["pulling", *(f"fails-{method.lower()}" for method in FAILING)])
def test_pod_that_does_not_run_yet_goes(node: ClusterNode, unborn: dict[str, str], name: str) -> None:
    last = node.wait_until_gone(name)

    assert last.phase == "Failed"
    wait_until_forgotten(node, name, unborn[name])
    assert_history_monotonic(node.history.of(name))


def test_crashing_pod_goes_as_it_ended(node: ClusterNode, unborn: dict[str, str]) -> None:
    last = node.wait_until_gone("crashing")

    starts = len(node.calls("crashing", "StartContainer"))
    assert (last.phase, last.restarts(), last.state()["exitCode"]) == ("Failed", starts - 1, 5)
    wait_until_forgotten(node, "crashing", unborn["crashing"])
    assert_history_monotonic(node.history.of("crashing"))


def test_pod_whose_volume_cannot_be_mounted_goes(node: ClusterNode, unborn: dict[str, str]) -> None:
    node.wait_until_gone("unmountable")

    wait_until_forgotten(node, "unmountable", unborn["unmountable"])
    assert node.calls("unmountable", "RunPodSandbox") == []
    assert_history_monotonic(node.history.of("unmountable"))


# --- Deletion that something prevents ---------------------------------------------------------------


@pytest.mark.parametrize("name", [*STUCK, *FAILING_CALLS])
def test_object_goes_after_its_containers(
    node: ClusterNode, deletions: Deletions, obstructed: list[Version], name: str
) -> None:
    """A pod's object is deleted only after its containers have stopped.

    The kubelet repeats a call that the API server refused.
    """
    last = node.wait_until_gone(name)

    assert (last.phase, last.state()["exitCode"]) == ("Failed", 143)
    deletion = deletions.wait_for(name)
    assert (deletion.containers, deletion.volumes) == ([], [])
    (uid,) = [each.uid for each in obstructed if each.name == name]
    wait_until_forgotten(node, name, uid)
    assert_history_monotonic(node.history.of(name))


# --- All pods ---------------------------------------------------------------------------------------


def test_nothing_is_left(node: ClusterNode) -> None:
    """Nothing of a deleted pod is left on the node, and every remaining pod is one that no test deleted."""
    assert not [each for each in node.history.present() if each.deleted]
    present = {each.uid for each in node.history.present()}
    assert node.pod_directories() == present
    assert {each.uid for each in node.pods().values()} == present
