"""Test how the kubelet treats changes to the API server's pods, and statuses that other clients write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from framework.apiserver.interfaces import Object
from framework.cluster_node import ClusterNode, condition
from framework.pod_history import Version, assert_history_monotonic, assert_never_unready
from framework.pods import Manifest, pod, shell, sleeper

from kubelet.cri.remote import fake

GATE = "example.org/gate"
# The kubelet corrects some statuses only in its periodic comparison, every 10 s.
FOREIGN = 30


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    node = new_node("node")
    node.join()
    return node


@pytest.fixture(scope="module")
def unreadable(node: ClusterNode) -> Version:
    """Return a pod as it was before its object became unreadable.

    The fixture then creates further pods, some of them ended or unreadable, while the kubelet's watch is interrupted.
    """
    node.create(pod("unreadable", sleeper()))
    (before,) = node.wait_for_api_running("unreadable")
    make_unreadable(node, "unreadable")
    node.wait_for_log("Failed to decode an object", "default/unreadable", "terminationGracePeriodSeconds")
    with node.unseen():
        for phase in ("Succeeded", "Failed"):
            name = f"seen-{phase.lower()}"
            node.create(pod(name, sleeper()))
            node.patch(name, {"status": {"phase": phase, "message": "ended before"}}, "status")
        node.create(pod("mended", sleeper()))
        make_unreadable(node, "mended")
        node.create(pod("readable", sleeper()))
    return before


def make_unreadable(node: ClusterNode, name: str, readable: bool = False) -> None:
    """Give one field of a stored pod a wrong type, as a server of another version might, or correct it again."""
    _change_stored(node, name, lambda spec: spec.update(terminationGracePeriodSeconds=2 if readable else "soon"))


def _change_stored(node: ClusterNode, name: str, change: Callable[[Object], object]) -> None:
    """Change the spec of a pod in the server's storage, which validates nothing."""
    storage = node.cluster.server._storage
    while True:
        entry = storage.get("pods", ("default", name))
        assert entry is not None
        changed = entry.copy()
        change(changed["spec"])
        if storage.replace("pods", entry, changed) is not None:
            return


def shown(node: ClusterNode, name: str) -> Object:
    """Return the pod's object as the kubelet's server shows it."""
    return node.pods()[name].json


def status_patches(node: ClusterNode, name: str) -> int:
    return len(node.cluster.requests.calls(verb="patch", resource="pods", subresource="status", name=name, code=200))


# --- ADD --------------------------------------------------------------------------------------------


def test_added_pod_runs_and_the_api_server_is_told(node: ClusterNode) -> None:
    made = node.create(pod("added", sleeper(), sleeper("other")))

    (running,) = node.wait_for_api_running("added")

    assert running.uid == made.uid
    phases = [each.phase for each in node.history.of("added")]
    assert (phases[0], phases[-1]) == ("Pending", "Running")
    status = running.status
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIP"] and status["startTime"] and status["qosClass"] == "BestEffort"
    assert {kind: each["status"] for kind, each in running.conditions.items()} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert sorted(node.container_ids("added")) == sorted(running.container_id(name) for name in ("main", "other"))
    assert status_patches(node, "added") <= 3
    assert_history_monotonic(node.history.of("added"))
    assert_never_unready(node.history.of("added"))


def test_scheduled_pod_runs(node: ClusterNode) -> None:
    node.create(pod("scheduled", sleeper(), nodeName=None))

    (running,) = node.wait_for_api_running("scheduled")

    assert running.json["spec"]["nodeName"] == node.node
    assert_history_monotonic(node.history.of("scheduled"))


def test_pod_that_ends_keeps_its_end(node: ClusterNode) -> None:
    for name, script in (("succeeds", "exit 0"), ("fails", "exit 3")):
        node.create(pod(name, shell(script), restartPolicy="Never"))

    for name, phase, code in (("succeeds", "Succeeded", 0), ("fails", "Failed", 3)):
        ended = node.wait_for_api_pod(name, "ended", lambda found: found.phase in ("Succeeded", "Failed"))
        assert ended.phase == phase
        assert ended.state()["exitCode"] == code
        assert not ended.ready
        assert_history_monotonic(node.history.of(name))


def test_pods_of_other_nodes_are_ignored(node: ClusterNode) -> None:
    node.create(pod("elsewhere", sleeper(), nodeName="another-node"))
    node.create(pod("after-elsewhere", sleeper()))
    node.wait_for_api_running("after-elsewhere")

    assert "elsewhere" not in node.pods()
    assert node.calls("elsewhere") == []
    assert len(node.history.of("elsewhere")) == 1


def test_same_name_in_two_namespaces_is_two_pods(node: ClusterNode) -> None:
    store = node.cluster.store
    store.create("namespaces", {"metadata": {"name": "second"}})
    node.wait_for_condition("the service account", lambda: store.list("serviceaccounts", "second"))
    manifest = pod("namesake", sleeper())
    node.create(manifest)
    node.create({**manifest, "metadata": {"name": "namesake", "namespace": "second"}})
    (first,) = node.wait_for_api_running("namesake")

    def running_in_second() -> Version | None:
        found = node.history.latest("namesake", "second")
        return found if found is not None and found.running else None

    second = node.wait_for_condition("the second pod runs", running_in_second)
    assert second is not None and second.uid != first.uid
    assert len(node.container_ids("namesake")) == 2

    store.delete("pods", "namesake", "second")
    node.wait_for_condition("the second pod is gone", lambda: node.history.latest("namesake", "second") is None)
    assert node.container_ids("namesake") == [first.container_id()]
    assert node.history.latest("namesake") == first


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_when_first_seen_is_left_alone(node: ClusterNode, unreadable: Version, phase: str) -> None:
    name = f"seen-{phase.lower()}"
    node.wait_for_api_running("readable")  # This pod was created after the pod under test.

    found = node.history.latest(name)
    assert found is not None and (found.phase, found.status["message"]) == (phase, "ended before")
    assert (name in node.pods(), node.calls(name)) == (True, [])
    node.delete(name)
    node.wait_until_gone(name)
    node.wait_for_condition("the kubelet forgets the pod", lambda: name not in node.pods())


# --- UPDATE -----------------------------------------------------------------------------------------


def test_new_image_restarts_the_container_in_its_sandbox(node: ClusterNode) -> None:
    node.create(pod("image", sleeper(), sleeper("other")))
    (before,) = node.wait_for_api_running("image")

    containers = [{"name": "main", "image": "example.org/newer:2"}]
    node.patch("image", {"spec": {"containers": containers}})

    after = node.wait_for_api_pod("image", "restarted", lambda found: found.running and found.restarts() == 1)
    assert after.container()["image"] == "example.org/newer:2"
    assert after.state(which="lastState")["containerID"].endswith(before.container_id())
    assert (after.uid, after.status["podIP"]) == (before.uid, before.status["podIP"])
    assert (after.container_id("other"), after.restarts("other")) == (before.container_id("other"), 0)
    assert len(node.calls("image", "RunPodSandbox")) == 1
    node.wait_for_api_event("image", "Killing", "Container main definition changed, will be restarted")
    assert_history_monotonic(node.history.of("image"))


def test_new_labels_and_annotations_change_nothing_else(node: ClusterNode) -> None:
    node.create(pod("labels", sleeper()))
    (before,) = node.wait_for_api_running("labels")

    changed = {"labels": {"colour": "blue"}, "annotations": {"example.org/note": "changed"}}
    with node.cluster.faults.slow(0.0, verb="patch", resource="pods", subresource="status", name="labels") as patches:
        node.patch("labels", {"metadata": changed})

        node.wait_for_condition("the new label", lambda: shown(node, "labels")["metadata"].get("labels"))
        assert shown(node, "labels")["metadata"]["labels"] == {"colour": "blue"}
        assert shown(node, "labels")["metadata"]["annotations"]["example.org/note"] == "changed"
        node.patch("labels", {"metadata": {"labels": {"colour": None}}})
        node.wait_for_condition("no label", lambda: not shown(node, "labels")["metadata"].get("labels"))
    assert node.container_ids("labels") == [before.container_id()]
    assert len(node.calls("labels", "RunPodSandbox", "StartContainer")) == 2
    assert patches.hits == 0


def test_new_deadline_ends_the_pod(node: ClusterNode) -> None:
    node.create(pod("deadline", sleeper()))
    node.wait_for_api_running("deadline")

    node.patch("deadline", {"spec": {"activeDeadlineSeconds": 1}})

    ended = node.wait_for_api_pod("deadline", "ended", lambda found: found.phase == "Failed")
    assert ended.status["reason"] == "DeadlineExceeded"
    assert node.container_ids("deadline") == []
    assert_history_monotonic(node.history.of("deadline"))


# --- RECONCILE --------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Version], Object]] = {
    "phase": lambda pod: {"phase": "Pending"},
    "condition": lambda pod: {"conditions": [condition("Ready", "False", reason="Foreign")]},
    "container": lambda pod: {"containerStatuses": [{**pod.container(), "ready": False, "restartCount": 7}]},
    "no-container": lambda pod: {"containerStatuses": None},
    "ip": lambda pod: {"podIP": "192.0.2.7", "podIPs": [{"ip": "192.0.2.7"}, {"$patch": "replace"}]},
}


def test_what_others_write_into_statuses_is_put_right(node: ClusterNode) -> None:
    names = {kind: f"foreign-{kind}" for kind in WRITES}
    for name in names.values():
        node.create(pod(name, sleeper()))
    before = {each.name: each for each in node.wait_for_api_running(*names.values())}

    written: dict[str, int] = {}
    for kind, name in names.items():
        found = node.patch(name, {"status": WRITES[kind](before[name])}, "status")
        assert found["status"] != before[name].status, kind
        written[name] = int(found["metadata"]["resourceVersion"])

    def put_right(found: Version) -> bool:
        return found.version > written[found.name] and found.running and found.ready

    for name in names.values():
        after = node.wait_for_api_pod(name, "corrected", put_right, FOREIGN)
        assert without_times(after) == without_times(before[name])
        assert node.container_ids(name) == [before[name].container_id()]


def without_times(found: Version) -> Object:
    """Return the status without transition times, which a correction does change."""
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"}
        for each in sorted(found.conditions.values(), key=lambda each: str(each["type"]))
    ]
    return {**found.status, "conditions": conditions}


def test_conditions_of_others_stay(node: ClusterNode) -> None:
    foreign = condition("example.org/Approved", "True", reason="Because", message="it is")
    node.create(pod("approved", sleeper(), restartPolicy="Never"))
    (running,) = node.wait_for_api_running("approved")

    node.patch("approved", {"status": {"conditions": [foreign]}}, "status")
    node.runtime.end_container(running.container_id(), 0)

    ended = node.wait_for_api_pod("approved", "ended", lambda found: found.phase == "Succeeded")
    assert {key: ended.conditions["example.org/Approved"][key] for key in foreign} == foreign
    assert_history_monotonic(node.history.of("approved"))


def test_readiness_gate_of_another_makes_ready_at_once(node: ClusterNode) -> None:
    node.create(pod("gated", sleeper(), readinessGates=[{"conditionType": GATE}]))
    waiting = node.wait_for_api_pod("gated", "running", lambda found: found.running)
    assert not waiting.ready and waiting.conditions["ContainersReady"]["status"] == "True"
    assert waiting.conditions["Ready"]["reason"] == "ReadinessGatesNotReady"

    node.patch("gated", {"status": {"conditions": [condition(GATE, "True")]}}, "status")
    node.wait_for_api_pod("gated", "ready", lambda found: found.ready)
    node.patch("gated", {"status": {"conditions": [condition(GATE, "False")]}}, "status")
    node.wait_for_api_pod("gated", "no longer ready", lambda found: not found.ready)
    assert node.container_ids("gated") == [waiting.container_id()]


def test_phase_that_another_ends_ends_the_pod(node: ClusterNode) -> None:
    """A pod whose phase another client sets to Failed ends, like a pod whose controller no longer wants it."""
    node.create(pod("failed", sleeper(), grace=3))
    (running,) = node.wait_for_api_running("failed")

    node.patch("failed", {"status": {"phase": "Failed", "reason": "GivenUp"}}, "status")
    node.patch("failed", {"metadata": {"labels": {"look": "again"}}})

    node.wait_for_condition("the container ended", lambda: not node.container_ids("failed"))
    ended = node.wait_for_api_pod("failed", "ended", lambda found: found.state().get("is") == "terminated")
    assert ended.phase == "Failed" and not ended.ready
    (stopped,) = node.calls("failed", "StopContainer")
    assert (stopped.request.container_id, stopped.request.timeout) == (running.container_id(), 3)
    assert_history_monotonic(node.history.of("failed"))


def test_status_written_between_get_and_patch_loses_nothing(node: ClusterNode) -> None:
    foreign = condition("example.org/Meanwhile", "True")
    with node.cluster.faults.hang(verb="patch", resource="pods", subresource="status", name="between") as hang:
        node.create(pod("between", sleeper()))
        node.wait_for_condition("a patch of the status", lambda: hang.hits)
        node.patch("between", {"status": {"conditions": [foreign]}}, "status")
        node.patch("between", {"metadata": {"labels": {"meanwhile": "yes"}}})

    (running,) = node.wait_for_api_running("between")

    assert running.conditions["example.org/Meanwhile"]["status"] == "True"
    assert running.json["metadata"]["labels"] == {"meanwhile": "yes"}
    assert_history_monotonic(node.history.of("between"))


def test_conflict_on_status_is_tried_again(node: ClusterNode) -> None:
    only = {"verb": "patch", "resource": "pods", "subresource": "status", "name": "conflict"}
    with node.cluster.faults.status(409, message="the object has been modified", times=2, **only) as conflict:  # type: ignore[arg-type]
        node.create(pod("conflict", sleeper()))
        node.wait_for_api_running("conflict")

    assert conflict.hits == 2
    assert_history_monotonic(node.history.of("conflict"))


# --- Unexpected objects -----------------------------------------------------------------------------


def newer(manifest: Manifest) -> Manifest:
    """Add fields that only later versions of the API have."""
    manifest["metadata"]["newInMetadata"] = {"a": [1, {"b": None}]}
    manifest["spec"]["newInSpec"] = {"c": "d"}
    manifest["spec"]["containers"][0]["newInContainer"] = [True]
    manifest["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {"newInVolume": 1}}]
    return manifest


def test_fields_that_are_newer_than_the_kubelet_survive_it(node: ClusterNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.cluster.server, "keep_unknown_fields", True)
    made = node.create(newer(pod("newer", sleeper(), restartPolicy="Never"))).json
    (running,) = node.wait_for_api_running("newer")
    newer_status = {"newInStatus": {"e": "f"}, "conditions": [condition("New", "True", newInCondition="g")]}
    node.patch("newer", {"status": newer_status}, "status")

    node.runtime.end_container(running.container_id(), 0)
    ended = node.wait_for_api_pod("newer", "ended", lambda found: found.phase == "Succeeded")
    assert ended.json["spec"] == made["spec"]
    assert ended.json["metadata"]["newInMetadata"] == made["metadata"]["newInMetadata"]
    assert made["spec"]["newInSpec"] and made["spec"]["containers"][0]["newInContainer"]
    assert ended.status["newInStatus"] == {"e": "f"}
    assert ended.conditions["New"]["newInCondition"] == "g"
    assert_history_monotonic(node.history.of("newer"))


def test_pod_that_cannot_be_read_is_neither_lost_nor_in_the_way(node: ClusterNode, unreadable: Version) -> None:
    node.wait_for_api_running("readable")
    assert node.container_ids("unreadable") == [unreadable.container_id()]
    assert "unreadable" in node.pods()

    make_unreadable(node, "unreadable", readable=True)
    node.delete("unreadable")
    node.wait_until_gone("unreadable")
    assert node.container_ids("unreadable") == []
    assert_history_monotonic(node.history.of("unreadable"))


@pytest.mark.usefixtures("unreadable")
def test_pod_that_cannot_be_read_at_first_runs_when_it_can(node: ClusterNode) -> None:
    node.wait_for_log("Failed to decode an object", "default/mended", "terminationGracePeriodSeconds")
    node.wait_for_api_running("readable")
    node.wait_for_api_event("mended", "WaitingForResources", "parts of the pod cannot be decoded")
    assert node.container_ids("mended") == [] and status_patches(node, "mended") == 0

    make_unreadable(node, "mended", readable=True)

    node.wait_for_api_running("mended")
    assert_history_monotonic(node.history.of("mended"))


@pytest.mark.parametrize("mended", [True, False])
def test_restart_ends_no_pod_that_cannot_be_read(new_node: Callable[..., ClusterNode], mended: bool) -> None:
    """A restarted kubelet does not stop a pod whose object it cannot decode.

    The new kubelet sees the pod for the first time, and does not know the pod's containers and volumes.
    """
    name = f"unread-{mended}".lower()
    node = new_node(f"{name}-node")
    node.join()
    scratch = {"name": "scratch", "emptyDir": {}}
    mounting = sleeper(volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    node.create(pod(name, mounting, volumes=[scratch]))
    node.create(pod(f"{name}-removed", sleeper()))
    before, _ = node.wait_for_api_running(name, f"{name}-removed")
    file = node.root_dir / "pods" / before.uid / "volumes" / "kubernetes.io~empty-dir" / "scratch" / "file"
    file.write_text("kept")

    node.kill()
    _change_stored(node, name, lambda spec: spec["containers"][0].update(image=["no", "name"]))
    node.delete(f"{name}-removed", grace=0)
    node.join()
    node.create(pod(f"{name}-made", sleeper()))
    node.wait_for_api_running(f"{name}-made")
    node.wait_for_condition("the orphan ended", lambda: not node.container_ids(f"{name}-removed"))

    assert node.container_ids(name) == [before.container_id()]
    assert node.calls(name, "StopContainer", "StopPodSandbox") == []
    assert file.read_text() == "kept"
    if mended:
        _change_stored(node, name, lambda spec: spec["containers"][0].update(image=mounting["image"]))
        node.patch(name, {"metadata": {"labels": {"now": "read"}}})
        node.runtime.end_container(before.container_id(), 3)
        node.wait_for_api_pod(name, "restarted", lambda found: found.running and found.restarts() == 1)
        assert file.read_text() == "kept"
    # Without a grace period the deletion needs no status update. The server cannot decode the pod either, so it would
    # refuse that update.
    node.delete(name, None if mended else 0)
    node.wait_until_gone(name)
    node.wait_for_condition("the pod's containers have ended", lambda: not node.container_ids(name))
    assert_history_monotonic(node.history.of(name))


# --- All pods ---------------------------------------------------------------------------------------


def test_crashing_pod_shows_each_restart(node: ClusterNode) -> None:
    node.runtime.behaviours.add(fake.Behaviour(run_for=0, exit_code=1), pod="crashes", times=1)
    node.create(pod("crashes", sleeper()))

    running = node.wait_for_api_pod("crashes", "restarted", lambda found: found.running and found.restarts() == 1)

    assert running.state(which="lastState")["exitCode"] == 1
    assert_history_monotonic(node.history.of("crashes"))


def test_nothing_is_written_when_nothing_happens(node: ClusterNode) -> None:
    """The status of a pod that is ready or has ended does not change, although the kubelet has synced it again."""
    for name in ("added", "scheduled", "namesake"):
        assert [each.ready for each in node.history.of(name)].index(True) == len(node.history.of(name)) - 1
    for name in ("succeeds", "fails"):
        ended = [each.phase in ("Succeeded", "Failed") for each in node.history.of(name)]
        assert ended.index(True) == len(ended) - 1
