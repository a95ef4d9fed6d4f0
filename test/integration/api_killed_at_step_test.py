"""Test that a pod survives when the kubelet is killed at any step of the pod's life.

A call that does not return stops each pod at a step of its own. Then the test kills the kubelet once for all pods. Each
pod must end up like an undisturbed pod of the same kind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from cri_api.v1.api_pb2 import CONTAINER_RUNNING
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode, condition
from framework.pod_history import Version, assert_history_monotonic
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for

from kubelet.cri.remote import fake

NODE = "killed"


def check(what: str) -> dict[str, Any]:
    """Return an exec probe or hook whose command is the word `what`, which identifies it."""
    return {"exec": {"command": [what]}}


def probe(what: str) -> dict[str, Any]:
    return {**check(what), "periodSeconds": 1}


SIDE = sleeper("side", restartPolicy="Always", startupProbe=probe("startup"))


def behaving(manifest: Manifest, **behaviours: str) -> Manifest:
    """Add an annotation that describes to the runtime, as JSON, how the pod's containers behave."""
    manifest["metadata"]["annotations"] = {f"fake.cri/{name}": said for name, said in behaviours.items()}
    return manifest


# Each kind of pod differs from the others in its containers, probes and hooks.
KINDS: dict[str, Callable[[str], Manifest]] = {
    "plain": lambda name: pod(name, sleeper(imagePullPolicy="Always", lifecycle={"postStart": check("hook")})),
    "probed": lambda name: pod(
        name,
        sleeper(startupProbe=probe("startup"), readinessProbe=probe("readiness"), livenessProbe=probe("liveness")),
    ),
    "init": lambda name: pod(
        name,
        sleeper(),
        initContainers=[shell("sleep 0.2", "one"), shell("sleep 0.2", "two")],
        restartPolicy="OnFailure",
    ),
    "sidecar": lambda name: pod(
        name, sleeper(readinessProbe=probe("readiness")), initContainers=[SIDE, shell("true", "one")]
    ),
    "double": lambda name: pod(name, sleeper("a", lifecycle={"preStop": check("leave")}), sleeper("b")),
    "half": lambda name: behaving(
        pod(name, sleeper("a", readinessProbe=probe("readiness")), sleeper("b", readinessProbe=probe("readiness"))),
        b='{"exec_exit_code": 1}',
    ),
    "gated": lambda name: pod(name, sleeper(), readinessGates=[{"conditionType": "example.com/gate"}]),
    "host": lambda name: pod(name, sleeper(), hostNetwork=True),
    "debugged": lambda name: pod(name, sleeper()),
    "ends": lambda name: pod(
        name, shell("sleep 0.2; exit 3", "bad"), shell("sleep 0.4", "good"), restartPolicy="Never"
    ),
    "succeeds": lambda name: pod(
        name, shell("sleep 0.2"), initContainers=[{**SIDE}, shell("true", "one")], restartPolicy="OnFailure"
    ),
}
ENDING = ("ends", "succeeds")


@dataclass(frozen=True)
class Step:
    """Describe a call that does not return; `what` is a container's name or a command.

    If `answered` is true, the runtime carries the call out, but its response does not arrive.
    """

    kind: str
    method: str
    what: str = ""
    answered: bool = False

    @property
    def name(self) -> str:
        words = [self.kind, self.method, self.what, "answered" if self.answered else ""]
        return "-".join(filter(None, words)).lower()


COMING = [
    Step("plain", "RunPodSandbox"),
    Step("plain", "RunPodSandbox", answered=True),
    Step("plain", "PullImage"),
    Step("plain", "PullImage", answered=True),
    Step("plain", "CreateContainer", "main"),
    Step("plain", "StartContainer", "main", answered=True),
    Step("plain", "ExecSync", "hook"),
    Step("probed", "ExecSync", "startup"),
    Step("probed", "ExecSync", "startup", answered=True),
    Step("probed", "ExecSync", "readiness"),
    Step("probed", "ExecSync", "liveness"),
    Step("init", "StartContainer", "one", answered=True),
    Step("init", "CreateContainer", "two"),
    Step("init", "StartContainer", "two", answered=True),
    Step("init", "CreateContainer", "main"),
    Step("init", "StartContainer", "main", answered=True),
    Step("sidecar", "CreateContainer", "side"),
    Step("sidecar", "StartContainer", "side", answered=True),
    Step("sidecar", "ExecSync", "startup"),
    Step("sidecar", "CreateContainer", "one"),
    Step("sidecar", "StartContainer", "one", answered=True),
    Step("sidecar", "CreateContainer", "main"),
    Step("sidecar", "StartContainer", "main", answered=True),
    Step("sidecar", "ExecSync", "readiness"),
    Step("double", "CreateContainer", "a"),
    Step("double", "CreateContainer", "b"),
    Step("double", "StartContainer", "b", answered=True),
    Step("host", "StartContainer", "main", answered=True),
    Step("ends", "CreateContainer", "good"),
    Step("ends", "StartContainer", "good", answered=True),
    Step("ends", "StopPodSandbox"),
    Step("ends", "StopPodSandbox", answered=True),
    Step("succeeds", "CreateContainer", "main"),
    Step("succeeds", "StartContainer", "main", answered=True),
    Step("succeeds", "StopContainer", "side"),
    Step("succeeds", "StopContainer", "side", answered=True),
    Step("succeeds", "StopPodSandbox"),
]
GOING = [
    Step("plain", "StopContainer", "main"),
    Step("plain", "StopContainer", "main", answered=True),
    Step("plain", "StopPodSandbox"),
    Step("plain", "StopPodSandbox", answered=True),
    Step("probed", "StopContainer", "main", answered=True),
    Step("init", "StopContainer", "main", answered=True),
    Step("sidecar", "StopContainer", "main"),
    Step("sidecar", "StopContainer", "main", answered=True),
    Step("sidecar", "StopContainer", "side"),
    Step("sidecar", "StopContainer", "side", answered=True),
    Step("double", "ExecSync", "leave"),
    Step("double", "ExecSync", "leave", answered=True),
    Step("double", "StopContainer", "a", answered=True),
    Step("double", "StopContainer", "b"),
]
# Like the Go kubelet, the kubelet creates the container again, and the first one, which never started, counts as a run.
NEVER_STARTED = Step("plain", "StartContainer", "main")
# For each kind in UNTOLD the API server refuses the status updates of one pod, and for each in UNDELETED its deletion.
UNTOLD = ["plain", "probed", "init", "sidecar", "double", "ends", "succeeds"]
NOT_THERE = "registry.k8s.io/not-there:1"
CRASHING, NO_IMAGE = "crashing", "no-image"
UNDELETED = ["plain", "sidecar"]


def control(kind: str) -> str:
    return f"{kind}-undisturbed"


def control_gone(kind: str) -> str:
    return f"{kind}-undisturbed-gone"


def untold(kind: str) -> str:
    return f"{kind}-untold"


def undeleted(kind: str) -> str:
    return f"{kind}-undeleted"


def going(step: Step) -> str:
    return f"{step.name}-going"


class Story:
    """Hold the node and what happened to its pods."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        # `version` is the newest version that the API server had seen when the kubelet was killed.
        self.version = 0
        self.pulls = 0  # `pulls` counts the requests for the missing image before the kill.
        self.probes = 0  # `probes` counts the containers' probes before the kill.
        self._hangs: list[fake.Fault] = []

    def create(self, kind: str, name: str) -> None:
        self.node.create(KINDS[kind](name))

    def latest(self, name: str) -> Version:
        found = self.node.history.latest(name)
        assert found is not None, f"there is no pod {name}"
        return found

    def changes(self, name: str) -> list[Version]:
        """List the versions of a pod that the API server saw after the kubelet was killed."""
        return [each for each in self.node.history.of(name) if each.version > self.version]

    def wait_until_at_end(self, kind: str, name: str) -> None:
        if kind in ENDING:
            self.node.wait_for_api_pod(name, "ended", lambda found: found.phase in ("Succeeded", "Failed"), 60)
        elif kind == "gated":
            self.node.wait_for_api_pod(name, "runs", lambda found: found.running, 60)
        elif kind == "half":
            self.node.wait_for_api_pod(name, "is half ready", lambda found: found.container("a").get("ready"), 60)
            self.node.wait_for_api_event(name, "Unhealthy", "Readiness probe failed")
        else:
            self.node.wait_for_api_running(name, timeout=60)

    def stop_at(self, step: Step, name: str) -> fake.Fault:
        """Make the step's call hang when the call concerns the pod of this name."""

        def match(request: Any) -> bool:
            return self._pod_of(request) == name and step.what in ("", *self._words_of(request))

        fault = self.node.runtime.faults.hang(step.method, match=match, answer=step.answered)
        self._hangs.append(fault)
        return fault

    def hold_restarts(self, name: str, attempt: int) -> None:
        """Prevent the runtime from creating the pod's container at this or a later attempt, until the kill.

        On a slow machine the container's back-off may be over by then. Without the fault the kill would come while the
        container restarts.
        """

        def match(request: Any) -> bool:
            return self._pod_of(request) == name and request.config.metadata.attempt >= attempt

        self._hangs.append(self.node.runtime.faults.hang("CreateContainer", match=match))

    def _container_of(self, request: Any) -> Any:
        wanted = getattr(request, "container_id", "")
        return next((each for each in self.node.runtime.containers if wanted and each.id == wanted), None)

    def _pod_of(self, request: Any) -> str:
        for config in (getattr(request, "sandbox_config", None), getattr(request, "config", None)):
            if config is not None and hasattr(config, "log_directory"):
                return str(config.metadata.name)
        container = self._container_of(request)
        if container is not None:
            return str(container.sandbox.config.metadata.name)
        wanted = getattr(request, "pod_sandbox_id", "")
        found = (each.config.metadata.name for each in self.node.runtime.sandboxes if each.id == wanted)
        return str(next(found, ""))

    def _words_of(self, request: Any) -> list[str]:
        """List the container's name and the words of the command."""
        container = self._container_of(request)
        config = container.config if container is not None else getattr(request, "config", None)
        name = config.metadata.name if config is not None else ""
        return [name, *getattr(request, "cmd", [])]

    def kill_and_restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.probes = len(self.node.runtime.recorder.calls(["ExecSync"]))
        self.pulls = _pulls(self)
        self.version = max(each.version for each in self.node.history.all())
        self.node.kill()
        # Wait until the runtime has dropped the hanging calls. Otherwise it would carry them out although no caller
        # waits for them any longer.
        wait_for("the end of the hanging calls", lambda: not any(fault.waiting for fault in self._hangs), timeout=30)
        for fault in self._hangs:
            self.node.runtime.faults.remove(fault)
        meanwhile()
        self.node.join()

    def end_all_sandboxes(self) -> None:
        """End all sandboxes, as a reboot of the machine does."""
        for sandbox in self.node.runtime.sandboxes:
            if sandbox.ready:
                self.node.runtime.end_sandbox(sandbox.id)


@pytest.fixture(scope="module")
def story(new_node: Callable[..., ClusterNode], cluster: Cluster) -> Iterator[Story]:
    node = new_node(NODE, {"maxPods": 200, "maxParallelImagePulls": 10, "serializeImagePulls": False})
    node.runtime.images.pull_errors[NOT_THERE] = fake.not_found(NOT_THERE)
    node.join()
    story = Story(node)
    _run_undisturbed(story)
    with ExitStack() as refused:
        faults = _stop_pods(story, cluster, refused)
        for name, fault in faults.items():
            node.wait_for_condition(f"{name} is at its step", functools.partial(getattr, fault, "hits"), 60)
        _wait_until_untold(story)
        _create_failing(story)
        node.wait_until_containers_are_old()
        story.kill_and_restart()
    yield story


def _run_undisturbed(story: Story) -> None:
    for kind in KINDS:
        story.create(kind, control(kind))
        if kind not in ENDING:
            story.create(kind, control_gone(kind))
    for kind in KINDS:
        story.wait_until_at_end(kind, control(kind))
        if kind not in ENDING:
            story.wait_until_at_end(kind, control_gone(kind))
            story.node.delete(control_gone(kind))
    gate = {"status": {"conditions": [condition("example.com/gate", "True")]}}
    story.node.patch(control("gated"), gate, "status")
    story.node.wait_for_api_running(control("gated"))
    looking = [sleeper("looks"), shell("exit 3", "looked")]
    story.node.patch(control("debugged"), {"spec": {"ephemeralContainers": looking}}, "ephemeralcontainers")
    story.node.wait_for_api_pod(control("debugged"), "has its ephemeral containers", _is_looked_at)
    for kind in KINDS:
        if kind not in ENDING:
            story.node.wait_until_gone(control_gone(kind))


def _is_looked_at(found: Version) -> bool:
    states = [found.statuses.get(name, {}).get("state", {}) for name in ("looks", "looked")]
    return "running" in states[0] and "terminated" in states[1]


def _stop_pods(story: Story, cluster: Cluster, refused: ExitStack) -> dict[str, Any]:
    """Bring each pod to its step, and return the faults by the names of the pods."""
    faults: dict[str, Any] = {}
    for kind in UNTOLD:
        name = untold(kind)
        fault = cluster.faults.status(500, verb="patch", resource="pods", subresource="status", name=name)
        faults[name] = refused.enter_context(fault)
        story.create(kind, name)
    for step in (*COMING, NEVER_STARTED):
        faults[step.name] = story.stop_at(step, step.name)
        story.create(step.kind, step.name)
    for step in GOING:
        story.create(step.kind, going(step))
    for kind in UNDELETED:
        story.create(kind, undeleted(kind))
    for step in GOING:
        story.wait_until_at_end(step.kind, going(step))
        faults[going(step)] = story.stop_at(step, going(step))
        story.node.delete(going(step))
    for kind in UNDELETED:
        name = undeleted(kind)
        story.wait_until_at_end(kind, name)
        fault = cluster.faults.status(500, verb="delete", resource="pods", name=name, user=f"system:node:{NODE}")
        faults[name] = refused.enter_context(fault)
        story.node.delete(name)
    return faults


def _create_failing(story: Story) -> None:
    """Create pods with a container that cannot start, or that crashes at once."""
    story.hold_restarts(CRASHING, attempt=2)
    story.node.create(pod(CRASHING, shell("exit 1")))
    image = {"name": "main", "image": NOT_THERE}
    story.node.create(pod(NO_IMAGE, image))
    story.node.wait_for_api_pod(CRASHING, "waits", lambda found: found.restarts() and found.state()["is"] != "running")
    story.node.wait_for_api_pod(NO_IMAGE, "waits", lambda found: found.state().get("reason") == "ImagePullBackOff")


def _wait_until_untold(story: Story) -> None:
    """Wait until the pods whose statuses do not reach the API server are in their final states."""

    def states(kind: str) -> list[Any]:
        found = (each for each in story.node.runtime.containers if each.sandbox.config.metadata.name == untold(kind))
        return [each.state for each in found]

    def look() -> bool:
        for kind in UNTOLD:
            spec = KINDS[kind]("")["spec"]
            found = states(kind)
            if len(found) < len(spec["containers"]) + len(spec.get("initContainers", [])):
                return False
            if kind in ENDING and CONTAINER_RUNNING in found:
                return False
        return True

    story.node.wait_for_condition("the final states of pods without status updates", look)


def _is_main(container: Any, name: str) -> bool:
    return (container.sandbox.config.metadata.name, container.config.metadata.name) == (name, "main")


def _probed(story: Story, container_id: str) -> bool:
    """Report whether every probe of the container has run since the kubelet was killed."""
    found = story.node.runtime.recorder.calls(["ExecSync"])[story.probes :]
    return [call.request.container_id for call in found].count(container_id) >= 4


def _pulls(story: Story) -> int:
    return sum(call.request.image.image == NOT_THERE for call in story.node.runtime.recorder.calls(["PullImage"]))


# --- Expectations -----------------------------------------------------------------------------------


def final(version: Version) -> dict[str, Any]:
    """Return the status without the values that differ from run to run: times, IDs and addresses."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key not in _OF_THE_RUN}
        return [plain(item) for item in value] if isinstance(value, list) else value

    status: dict[str, Any] = plain(version.status)
    return status


_OF_THE_RUN = (
    "containerID", "lastTransitionTime", "lastProbeTime", "startedAt", "finishedAt", "startTime", "podIP", "podIPs",
)  # fmt: skip

# A container moves through these states in this order and must not move back.
_STATES = ("waiting", "running", "started", "ready", "terminated")


def _rank(status: dict[str, Any]) -> int:
    (state,) = (kind for kind, value in status["state"].items() if value is not None)
    if state == "running" and status.get("started"):
        state = "ready" if status["ready"] else "started"
    return _STATES.index(state)


def _regular(version: Version) -> list[dict[str, Any]]:
    return version.status.get("containerStatuses") or []


def assert_straight(versions: Iterable[Version]) -> None:
    """Check that no status of the pod moved backwards and that no container ran twice."""
    versions = list(versions)
    assert_history_monotonic(versions)
    for before, after in pairwise(versions):
        assert before.status.get("podIP") in (None, after.status.get("podIP")), f"address at {after.version}"
        for name, status in after.statuses.items():
            was = before.statuses.get(name)
            assert status["restartCount"] == 0, f"{name} at {after.version}: {status}"
            assert was is None or _rank(was) <= _rank(status), f"{name} at {after.version}: {was} became {status}"
        if after.deleted or any(_rank(status) == len(_STATES) - 1 for status in _regular(after)):
            continue
        for kind, found in before.conditions.items():
            now = after.conditions[kind]
            assert found["status"] != "True" or now == found, f"{kind} at {after.version}: {found} became {now}"


def assert_untouched(story: Story, name: str) -> None:
    """Check that the kubelet wrote nothing to the pod after the kubelet was killed."""
    (before,) = [each for each in story.node.history.of(name) if each.version <= story.version][-1:]
    changes = story.changes(name)
    assert not changes, f"{before.status} became {changes[0].status}"


def assert_run_once(node: ClusterNode, name: str) -> None:
    made = [call for call in node.calls(name, "RunPodSandbox") if not call.error]
    assert len(made) <= 1
    attempts = [call.request.config.metadata.attempt for call in node.calls(name, "CreateContainer")]
    assert set(attempts) <= {0}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_that_had_come_to_an_end_are_left_alone(story: Story, kind: str) -> None:
    """A pod that had reached its final state gets no write until all other pods have reached theirs."""
    for step in COMING:
        story.wait_until_at_end(step.kind, step.name)
    assert_untouched(story, control(kind))


@pytest.mark.parametrize("step", COMING, ids=lambda step: step.name)
def test_killed_while_a_pod_comes(story: Story, step: Step) -> None:
    story.wait_until_at_end(step.kind, step.name)
    assert_straight(story.node.history.of(step.name))
    assert_run_once(story.node, step.name)
    assert final(story.latest(step.name)) == final(story.latest(control(step.kind)))


def test_killed_between_the_making_and_the_start_of_a_container(story: Story) -> None:
    story.wait_until_at_end("plain", NEVER_STARTED.name)
    assert_history_monotonic(story.node.history.of(NEVER_STARTED.name))
    (status,) = _regular(story.latest(NEVER_STARTED.name))
    assert (status["restartCount"], status["ready"]) == (1, True)
    made = story.node.calls(NEVER_STARTED.name, "CreateContainer")
    attempts = [call.request.config.metadata.attempt for call in made]
    assert attempts == [0, 1]
    started = [call for call in story.node.calls(NEVER_STARTED.name, "StartContainer") if not call.error]
    assert len(started) == 1


@pytest.mark.parametrize("step", GOING, ids=lambda step: step.name)
def test_killed_while_a_pod_goes(story: Story, step: Step) -> None:
    last = story.node.wait_until_gone(going(step))
    assert_straight(story.node.history.of(going(step)))
    assert_run_once(story.node, going(step))
    undisturbed = story.node.history.of(control_gone(step.kind))[-1]
    assert final(last) == final(undisturbed)


@pytest.mark.parametrize("kind", UNTOLD)
def test_killed_before_the_api_server_heard_of_a_pod(story: Story, kind: str) -> None:
    story.wait_until_at_end(kind, untold(kind))
    assert_straight(story.node.history.of(untold(kind)))
    assert_run_once(story.node, untold(kind))
    assert final(story.latest(untold(kind))) == final(story.latest(control(kind)))


@pytest.mark.parametrize("kind", UNDELETED)
def test_killed_before_a_pod_was_deleted(story: Story, kind: str) -> None:
    last = story.node.wait_until_gone(undeleted(kind))
    assert_straight(story.node.history.of(undeleted(kind)))
    assert final(last) == final(story.node.history.of(control_gone(kind))[-1])


def test_killed_while_an_image_cannot_be_pulled(story: Story) -> None:
    """The container still waits for its image, and the new kubelet pulls at once, as the Go kubelet does."""
    story.node.wait_for_condition("the image is pulled again", lambda: _pulls(story) > story.pulls)
    versions = story.node.history.of(NO_IMAGE)
    (before,) = [each for each in versions if each.version <= story.version][-1:]
    for after in story.changes(NO_IMAGE):
        assert after.state()["reason"] in ("ImagePullBackOff", "ErrImagePull")
        assert after.conditions == before.conditions


def test_killed_while_a_container_is_not_restarted_yet(story: Story) -> None:
    """The new kubelet restarts the container at once, as the Go kubelet does, and continues the restart count."""
    versions = story.node.history.of(CRASHING)
    (before,) = [each for each in versions if each.version <= story.version][-1:]
    story.node.wait_for_api_pod(CRASHING, "is restarted", lambda found: found.restarts() > before.restarts())
    versions = story.node.history.of(CRASHING)
    assert_history_monotonic(versions)
    for after in story.changes(CRASHING):
        assert after.conditions["Initialized"] == before.conditions["Initialized"]
        assert after.conditions["PodReadyToStartContainers"] == before.conditions["PodReadyToStartContainers"]
        assert after.restarts() == before.restarts() or "exitCode" in after.state(which="lastState")


def test_killed_right_after_a_pod_became_ready(story: Story) -> None:
    story.create("probed", "young")
    story.create("sidecar", "young-sidecar")
    story.node.wait_for_api_running("young", "young-sidecar")
    story.kill_and_restart()
    for name in ("young", "young-sidecar"):
        (container,) = (each for each in story.node.runtime.containers if _is_main(each, name))
        story.node.wait_for_condition("the pod is probed again", functools.partial(_probed, story, container.id))
        assert_untouched(story, name)


def test_rebooted_machine(story: Story) -> None:
    """After a reboot, pods that had ended stay as they were, and the others run again in new sandboxes."""
    story.kill_and_restart(meanwhile=story.end_all_sandboxes)
    for kind in ("plain", "probed", "init", "sidecar", "double"):
        found = story.node.wait_for_api_pod(control(kind), "runs again", _is_restarted, timeout=120)
        assert {each["restartCount"] for each in _regular(found)} == {1}
        assert all(each["lastState"]["terminated"]["exitCode"] == 137 for each in _regular(found))
        sandboxes = [call for call in story.node.calls(control(kind), "RunPodSandbox") if not call.error]
        assert [call.request.config.metadata.attempt for call in sandboxes] == [0, 1]
        # As with the Go kubelet, such a pod's phase goes back to Pending until its init containers have run again.
        if "initContainers" not in KINDS[kind]("")["spec"]:
            assert_history_monotonic(story.node.history.of(control(kind)))
    for kind in ENDING:
        assert_untouched(story, control(kind))


def _is_restarted(found: Version) -> bool:
    return found.running and found.ready and all(each["restartCount"] for each in _regular(found))
