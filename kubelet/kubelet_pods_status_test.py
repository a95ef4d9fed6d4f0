"""Test how phases and statuses follow from the runtime's state."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import lifecycle
from kubelet import types as kubetypes
from kubelet.kubelet_pods import RESTARTING_ALL_CONTAINERS, get_phase
from kubelet.kuberuntime.testing import create_test_runtime_manager
from kubelet.status.status_manager import check_container_state_transition
from kubelet.testing import TestKubelet, new_pod
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.util.testing import lines_run

PENDING, RUNNING, SUCCEEDED, FAILED = v1.POD_PENDING, v1.POD_RUNNING, v1.POD_SUCCEEDED, v1.POD_FAILED
State = kubecontainer.State


# ---- get_phase ----


def ended(exit_code: int, reason: str = "") -> v1.ContainerState:
    return v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=exit_code, reason=reason))


def is_running() -> v1.ContainerState:
    return v1.ContainerState(running=v1.ContainerStateRunning())


def is_waiting(reason: str = "") -> v1.ContainerState:
    return v1.ContainerState(waiting=v1.ContainerStateWaiting(reason=reason))


# Each word stands for a state in which a container may be.
STATES: dict[str, dict[str, Any]] = {
    "running": {"state": is_running()},
    "started": {"state": is_running(), "started": True},
    "stopped": {"state": ended(0)},
    "succeeded": {"state": ended(0)},
    "failed": {"state": ended(1)},
    "waiting": {"state": is_waiting()},
    "back-off": {"state": is_waiting(), "last_state": ended(0)},
    "failing": {"state": is_waiting(), "last_state": ended(1)},
    "removed": {"state": is_waiting(), "last_state": ended(137, RESTARTING_ALL_CONTAINERS)},
    "nothing": {},
}


def phase(
    policy: str,
    init: str,
    regular: str,
    *,
    terminal: bool = False,
    initialized: bool = False,
    static: bool = False,
    policies: dict[str, str] | None = None,
) -> str:
    """Return the phase of a pod with these containers.

    `init` and `regular` list containers as "name state". A sidecar's name begins with s, and "-" stands for no status.
    """
    statuses = []

    def container(word: str) -> v1.Container:
        name, _, state = word.strip().partition(" ")
        if state != "-":
            statuses.append(v1.ContainerStatus(name=name, **STATES[state]))
        own = "Always" if name.startswith("s") else (policies or {}).get(name)
        return v1.Container(name=name, restart_policy=own)

    spec = v1.PodSpec(restart_policy=policy)
    spec.containers = [container(word) for word in regular.split(",")]
    spec.init_containers = [container(word) for word in init.split(",") if word]
    pod = v1.Pod(spec=spec)
    if static:
        pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
    return get_phase(pod, statuses, terminal, initialized)


@pytest.mark.parametrize(
    ("policy", "regular", "expected"),
    [
        ("Always", "a -,b -", PENDING),
        ("Always", "a running,b running", RUNNING),
        ("Always", "a stopped,b stopped", RUNNING),
        ("Always", "a running,b stopped", RUNNING),
        ("Always", "a running,b -", PENDING),
        ("Always", "a running,b nothing", PENDING),
        ("Always", "a running,b waiting", PENDING),
        ("Always", "a running,b back-off", RUNNING),
        ("Always", "a back-off,b back-off", RUNNING),
        ("Never", "a running,b running", RUNNING),
        ("Never", "a succeeded,b succeeded", SUCCEEDED),
        ("Never", "a failed,b failed", FAILED),
        ("Never", "a running,b succeeded", RUNNING),
        ("Never", "a running,b -", PENDING),
        ("Never", "a succeeded,b -", PENDING),
        ("Never", "a succeeded,b failed", FAILED),
        ("OnFailure", "a succeeded,b succeeded", SUCCEEDED),
        ("OnFailure", "a failed,b failed", RUNNING),
        ("OnFailure", "a succeeded,b failed", RUNNING),
        ("OnFailure", "a running,b waiting", PENDING),
        ("OnFailure", "a running,b back-off", RUNNING),
        ("Never", "a removed,b removed", RUNNING),
    ],
)
def test_phase(policy: str, regular: str, expected: str) -> None:
    assert phase(policy, "", regular) == expected


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize(
    ("regular", "expected"),
    [
        ("a succeeded,b succeeded", SUCCEEDED),
        ("a succeeded,b failed", FAILED),
        ("a running,b failed", RUNNING),
        ("a succeeded,b waiting", PENDING),
    ],
)
def test_phase_of_a_pod_that_is_not_started_again(policy: str, regular: str, expected: str) -> None:
    assert phase(policy, "", regular, terminal=True) == expected


def test_static_pod_ends_only_as_its_policy_says() -> None:
    assert phase("Always", "", "a succeeded", terminal=True, static=True) == RUNNING
    assert phase("Never", "", "a succeeded", terminal=True, static=True) == SUCCEEDED


@pytest.mark.parametrize(
    ("init", "always", "never"),
    [
        ("x -", PENDING, PENDING),
        ("x running", PENDING, PENDING),
        ("x failed", PENDING, FAILED),
        ("x back-off", PENDING, PENDING),
        ("x failing", PENDING, FAILED),
        ("x waiting", PENDING, PENDING),
        ("x nothing", PENDING, PENDING),
        ("x removed", PENDING, PENDING),
    ],
)
def test_phase_while_initializing(init: str, always: str, never: str) -> None:
    assert phase("Always", init, "a -,b -") == always
    assert phase("Never", init, "a -,b -") == never


def test_phase_once_initialized() -> None:
    assert phase("Always", "x succeeded", "a running,b running") == RUNNING
    assert phase("Never", "x succeeded", "a succeeded,b succeeded") == SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "init", "regular", "terminal", "initialized", "expected"),
    [
        ("Always", "s -", "a -,b -", False, False, PENDING),
        ("Always", "s running", "a -,b -", False, False, PENDING),
        ("Always", "s stopped", "a -,b -", False, False, PENDING),
        ("Always", "s back-off", "a -,b -", False, False, PENDING),
        ("Always", "s failing", "a -,b -", False, False, PENDING),
        ("Always", "s waiting", "a -,b -", False, False, PENDING),
        ("Always", "s started", "a running,b -", False, True, PENDING),
        ("Always", "s started", "a running,b running", False, True, RUNNING),
        ("Always", "s running", "a running,b running", False, True, RUNNING),
        ("Always", "s stopped", "a running,b running", False, True, RUNNING),
        ("Always", "s back-off", "a running,b running", False, True, RUNNING),
        ("Always", "s failed", "a succeeded,b succeeded", True, True, SUCCEEDED),
        ("Always", "s succeeded", "a succeeded,b succeeded", True, True, SUCCEEDED),
        ("Always", "s running", "a running,b running", False, False, PENDING),
        ("Always", "x succeeded,s running", "a running", False, True, RUNNING),
        ("Always", "x running,s running", "a running", False, True, PENDING),
        ("Never", "s running", "a -,b -", False, False, PENDING),
        ("Never", "s failing", "a -,b -", False, False, PENDING),
        ("Never", "s started", "a succeeded,b succeeded", False, True, RUNNING),
        ("Never", "s running", "a succeeded,b succeeded", False, True, RUNNING),
        ("Never", "s succeeded", "a succeeded,b succeeded", False, True, SUCCEEDED),
        ("Never", "s failed", "a succeeded,b succeeded", False, True, SUCCEEDED),
        ("Never", "s failing", "a succeeded,b failed", False, True, FAILED),
    ],
)
def test_phase_with_sidecars(
    policy: str, init: str, regular: str, terminal: bool, initialized: bool, expected: str
) -> None:
    assert phase(policy, init, regular, terminal=terminal, initialized=initialized) == expected


@pytest.mark.parametrize(
    ("pod_policy", "init", "regular", "policies", "expected"),
    [
        ("Always", "", "a failed", {"a": "Never"}, FAILED),
        ("Always", "", "a failed", {"a": "OnFailure"}, RUNNING),
        ("Always", "", "a failed", {"a": "Always"}, RUNNING),
        ("Never", "", "a succeeded,b failed", {"a": "Always"}, RUNNING),
        ("Always", "", "a failed,b succeeded", {"a": "Never", "b": "OnFailure"}, FAILED),
        ("Always", "", "a succeeded,b succeeded", {"a": "Never", "b": "OnFailure"}, SUCCEEDED),
        ("Always", "x failed", "a -", {"x": "Never"}, FAILED),
        ("Never", "x failed", "a -", {"x": "OnFailure"}, PENDING),
    ],
)
def test_phase_with_restart_policies_of_containers(
    pod_policy: str, init: str, regular: str, policies: dict[str, str], expected: str
) -> None:
    assert phase(pod_policy, init, regular, policies=policies, initialized=True) == expected


# ---- Container statuses ----


def lost(name: str, restarts: int) -> v1.ContainerStatus:
    found = v1.ContainerStatus(name=name, state=is_waiting("ContainerCreating"), restart_count=restarts)
    found.last_state = ended(137, "ContainerStatusUnknown")
    return found


def shown(name: str, restarts: int = 0, **fields: Any) -> v1.ContainerStatus:
    return v1.ContainerStatus(name=name, restart_count=restarts, **fields)


def runtime(name: str, state: State, exit_code: int = 0, *, id: str = "", restarts: int = 0, created: int = 0) -> Any:
    return kubecontainer.Status(
        id=kubecontainer.ContainerID("test", id or name),
        name=name,
        state=state,
        exit_code=exit_code,
        restart_count=restarts,
        created_at=datetime.datetime.fromtimestamp(created, datetime.UTC),
    )


REMOVED = {
    "state": is_waiting(RESTARTING_ALL_CONTAINERS),
    "last_state": ended(137, RESTARTING_ALL_CONTAINERS),
}

CONVERSIONS: dict[str, tuple[list[Any], list[v1.ContainerStatus], bool, list[v1.ContainerStatus]]] = {
    "nothing yet": ([], [], False, [shown("a", state=is_waiting("ContainerCreating"))]),
    "lost while running": ([], [shown("a", state=is_running())], False, [lost("a", 1)]),
    "ended, and gone since": ([], [shown("a", 5, state=ended(1))], False, [shown("a", 5, state=ended(1))]),
    "waited before": (
        [],
        [shown("a", 3, state=is_waiting("PodInitializing"), last_state=ended(2))],
        False,
        [shown("a", 3, state=is_waiting("ContainerCreating"), last_state=ended(2))],
    ),
    "created": ([runtime("a", State.CREATED)], [], False, [shown("a", state=is_waiting())]),
    "running": ([runtime("a", State.RUNNING, restarts=2)], [], False, [shown("a", 2, state=is_running())]),
    "ended": ([runtime("a", State.EXITED, 3)], [], False, [shown("a", state=ended(3))]),
    "unknown after running": (
        [runtime("a", State.UNKNOWN)],
        [shown("a", 1, state=is_running())],
        False,
        [shown("a", 2, state=ended(137, "ContainerStatusUnknown"))],
    ),
    "unknown": ([runtime("a", State.UNKNOWN)], [], False, [shown("a", state=is_waiting())]),
    "restarted": (
        [
            runtime("a", State.EXITED, 1, id="oldest", created=1),
            runtime("a", State.RUNNING, id="newest", restarts=2, created=3),
            runtime("a", State.EXITED, 2, id="older", restarts=1, created=2),
        ],
        [],
        False,
        [shown("a", 2, state=is_running(), last_state=ended(2))],
    ),
    "runtime counts less restarts": (
        [runtime("a", State.RUNNING)],
        [shown("a", 5, state=ended(1), container_id="test://older")],
        False,
        [shown("a", 6, state=is_running(), last_state=ended(1))],
    ),
    "exit that restarts the pod": (
        [runtime("a", State.EXITED, 42)],
        [shown("a", state=is_running(), container_id="test://a")],
        True,
        [shown("a", state=ended(42))],
    ),
    "removed to restart the pod": ([], [shown("a", state=ended(42))], True, [shown("a", 1, **REMOVED)]),
    "killed and removed to restart the pod": ([], [shown("a", state=is_running())], True, [shown("a", 1, **REMOVED)]),
    "run anew to restart the pod": (
        [runtime("a", State.RUNNING, id="new")],
        [shown("a", 1, **REMOVED)],
        True,
        [shown("a", 1, state=is_running(), last_state=ended(137, RESTARTING_ALL_CONTAINERS))],
    ),
}


def essence(found: v1.ContainerStatus) -> tuple[Any, ...]:
    """Return the parts of a status that the tables contain."""

    def state(given: v1.ContainerState) -> tuple[str, Any, str]:
        if given.running is not None:
            return "running", None, ""
        if given.terminated is not None:
            return "terminated", given.terminated.exit_code, given.terminated.reason
        return ("waiting", None, given.waiting.reason) if given.waiting is not None else ("none", None, "")

    return found.name, found.restart_count, state(found.state), state(found.last_state)


@pytest.mark.parametrize(("now", "before", "restarting", "expected"), CONVERSIONS.values(), ids=list(CONVERSIONS))
def test_convert_to_api_container_statuses(
    test_kubelet: TestKubelet,
    now: list[kubecontainer.Status],
    before: list[v1.ContainerStatus],
    restarting: bool,
    expected: list[v1.ContainerStatus],
) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a")])
    copies = [v1.deepcopy(status) for status in before]
    found = test_kubelet.kubelet._convert_to_api_container_statuses(
        pod,
        kubecontainer.PodStatus(container_statuses=now),
        before,
        pod.spec.containers,
        pod_restarting=restarting,
    )
    assert [essence(status) for status in found] == [essence(status) for status in expected]
    assert before == copies, "the old status must not change"


def convert(test_kubelet: TestKubelet, pod: v1.Pod, *now: kubecontainer.Status, **old: Any) -> v1.PodStatus:
    pod_status = kubecontainer.PodStatus(container_statuses=list(now))
    return test_kubelet.kubelet._convert_status_to_api_status(pod, pod_status, v1.PodStatus(**old))


def test_lost_container_of_a_deleted_pod_is_not_counted_as_restarted(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a")])
    pod.metadata.deletion_timestamp = test_kubelet.clock.now()
    found = convert(test_kubelet, pod, container_statuses=[shown("a", state=is_running())])
    assert [essence(status) for status in found.container_statuses] == [essence(lost("a", 0))]


@pytest.mark.parametrize(("id_now", "started"), [("first", True), ("second", None)])
def test_only_the_same_container_stays_started(test_kubelet: TestKubelet, id_now: str, started: bool | None) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a")])
    before = shown("a", state=is_running(), container_id="test://first", started=True)
    found = convert(test_kubelet, pod, runtime("a", State.RUNNING, id=id_now), container_statuses=[before])
    assert found.container_statuses[0].started is started


def test_statuses_are_in_the_order_of_names_and_those_of_init_containers_of_the_spec(
    test_kubelet: TestKubelet,
) -> None:
    pod = new_pod("p", containers=[v1.Container(name="b"), v1.Container(name="a")])
    pod.spec.init_containers = [v1.Container(name="z"), v1.Container(name="y")]
    found = convert(test_kubelet, pod, runtime("stranger", State.RUNNING))
    assert [status.name for status in found.container_statuses] == ["a", "b"]
    assert [status.name for status in found.init_container_statuses] == ["z", "y"]
    reasons = {s.state.waiting.reason for s in found.container_statuses if s.state.waiting is not None}
    assert reasons == {"PodInitializing"}


@pytest.mark.parametrize(("policy", "state"), [(None, "terminated"), ("Always", "waiting")])
def test_init_container_that_is_gone_had_succeeded_if_the_pod_is_initialized(
    test_kubelet: TestKubelet, policy: str | None, state: str
) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a")], restart_policy="Always")
    pod.spec.init_containers = [v1.Container(name="i", restart_policy=policy)]
    found = convert(test_kubelet, pod, runtime("a", State.RUNNING)).init_container_statuses[0]
    assert essence(found)[2][0] == state
    if found.state.terminated is not None:
        assert (found.state.terminated.reason, found.state.terminated.exit_code) == ("Completed", 0)


def test_reason_of_a_failed_start_is_shown(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a"), v1.Container(name="b")], restart_policy="Always")
    result = kubecontainer.PodSyncResult()
    for name in ("a", "b"):
        start = kubecontainer.SyncResult(kubecontainer.START_CONTAINER, name)
        start.fail(RuntimeError("CrashLoopBackOff"), "back-off 10s")
        result.add_sync_result(start)
    test_kubelet.kubelet.reason_cache.update(pod.metadata.uid, result)
    found = convert(test_kubelet, pod, runtime("a", State.EXITED, 1), runtime("b", State.RUNNING))
    assert [essence(status) for status in found.container_statuses] == [
        ("a", 0, ("waiting", None, "CrashLoopBackOff"), ("terminated", 1, "")),
        ("b", 0, ("running", None, ""), ("none", None, "")),
    ]
    waiting = found.container_statuses[0].state.waiting
    assert waiting is not None
    assert waiting.message == "back-off 10s"


@pytest.mark.parametrize(
    ("reason", "ended_as", "now", "expected"),
    [
        ("ImagePullBackOff", "", [], ("waiting", None, "ImagePullBackOff")),
        ("CrashLoopBackOff", "test://a", [("a", State.EXITED)], ("waiting", None, "CrashLoopBackOff")),
        ("CrashLoopBackOff", "test://older", [("a", State.EXITED)], ("terminated", 1, "")),
        ("CrashLoopBackOff", "test://a", [("a", State.RUNNING)], ("running", None, "")),
        ("PodInitializing", "", [], ("waiting", None, "ContainerCreating")),
        (RESTARTING_ALL_CONTAINERS, "", [], ("waiting", None, "ContainerCreating")),
    ],
)
def test_reason_outlives_the_kubelet_that_gave_it(
    test_kubelet: TestKubelet, reason: str, ended_as: str, now: list[tuple[str, State]], expected: tuple[Any, ...]
) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a")], restart_policy="Always")
    before = shown("a", state=is_waiting(reason), last_state=ended(1) if ended_as else v1.ContainerState())
    if before.last_state.terminated is not None:
        before.last_state.terminated.container_id = ended_as
    found = convert(test_kubelet, pod, *[runtime(*each, exit_code=1) for each in now], container_statuses=[before])
    assert essence(found.container_statuses[0])[2] == expected


def quantities(cpu: str, memory: str) -> dict[str, Any]:
    return {name: resource.parse_quantity(text) for name, text in (("cpu", cpu), ("memory", memory)) if text}


@pytest.mark.parametrize(
    ("state", "asked", "actual", "before", "limits", "requests"),
    [
        (State.EXITED, ("200m", "200Mi"), ("300m", "1Gi"), None, ("200m", "200Mi"), ("100m", "100Mi")),
        (State.RUNNING, ("200m", "200Mi"), ("300m", "1Gi"), None, ("300m", "1Gi"), ("100m", "100Mi")),
        (State.RUNNING, ("200m", "200Mi"), None, ("250m", "2Gi"), ("250m", "2Gi"), ("100m", "100Mi")),
        (State.RUNNING, ("5m", "200Mi"), ("10m", "200Mi"), None, ("5m", "200Mi"), ("100m", "100Mi")),
        (State.RUNNING, ("5m", "200Mi"), ("11m", "200Mi"), None, ("11m", "200Mi"), ("100m", "100Mi")),
        (State.RUNNING, ("", ""), ("300m", "1Gi"), None, ("", ""), ("100m", "100Mi")),
    ],
)
def test_resources_in_force(
    test_kubelet: TestKubelet,
    state: State,
    asked: tuple[str, str],
    actual: tuple[str, str] | None,
    before: tuple[str, str] | None,
    limits: tuple[str, str],
    requests: tuple[str, str],
) -> None:
    container = v1.Container(name="a")
    container.resources.limits = quantities(*asked)
    container.resources.requests = quantities("100m", "100Mi")
    pod = new_pod("p", containers=[container])
    now = runtime("a", state)
    if actual is not None:
        found = quantities(*actual)
        now.resources = kubecontainer.ContainerResources(cpu_limit=found["cpu"], memory_limit=found["memory"])
    old = shown("a", state=is_running(), container_id="test://a")
    if before is not None:
        old.resources = v1.ResourceRequirements(limits=quantities(*before))
    status = convert(test_kubelet, pod, now, container_statuses=[old]).container_statuses[0]
    assert status.resources is not None
    assert status.resources.limits == quantities(*limits)
    assert status.resources.requests == quantities(*requests)
    assert status.allocated_resources == quantities("100m", "100Mi")
    assert container.resources.limits == quantities(*asked), "the spec must not change"


def test_user_and_stop_signal(test_kubelet: TestKubelet) -> None:
    now = runtime("c", State.RUNNING)
    now.user = kubecontainer.ContainerUser(
        linux=kubecontainer.LinuxContainerUser(uid=1, gid=2, supplemental_groups=[3])
    )
    now.stop_signal = "SIGQUIT"
    found = convert(test_kubelet, new_pod("p"), now).container_statuses[0]
    assert found.user == v1.ContainerUser(linux=v1.LinuxContainerUser(uid=1, gid=2, supplemental_groups=[3]))
    assert found.stop_signal == "SIGQUIT"


def test_volume_mounts_say_how_read_only_they_are(test_kubelet: TestKubelet) -> None:
    mounts = [
        v1.VolumeMount(name="rw", mount_path="/rw"),
        v1.VolumeMount(name="ro", mount_path="/ro", read_only=True),
        v1.VolumeMount(name="rro", mount_path="/rro", read_only=True, recursive_read_only="IfPossible"),
    ]
    pod = new_pod("p", containers=[v1.Container(name="c", volume_mounts=mounts)])
    expected = {"rw": None, "ro": "Disabled", "rro": "Disabled"}
    found = convert(test_kubelet, pod).container_statuses[0].volume_mounts
    assert {mount.name: mount.recursive_read_only for mount in found} == expected
    handler = kubecontainer.RuntimeHandler("", supports_recursive_read_only_mounts=True)
    test_kubelet.kubelet.runtime_state.set_runtime_handlers([handler])
    found = convert(test_kubelet, pod).container_statuses[0].volume_mounts
    assert {mount.name: mount.recursive_read_only for mount in found} == expected | {"rro": "Enabled"}


# ---- generate_api_pod_status ----


def generate(
    test_kubelet: TestKubelet, pod: v1.Pod, *now: kubecontainer.Status, terminal: bool = False
) -> v1.PodStatus:
    pod_status = kubecontainer.PodStatus(id=pod.metadata.uid, container_statuses=list(now))
    return test_kubelet.kubelet.generate_api_pod_status(test_kubelet.ctx, pod, pod_status, terminal)


def test_conditions_of_a_running_pod(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", restart_policy="Always")
    pod.metadata.generation = 3
    pod.status.conditions = [v1.PodCondition(type="example.com/gate", status="True")]
    found = generate(test_kubelet, pod, runtime("c", State.RUNNING))
    assert found.phase == RUNNING
    assert [(condition.type, condition.status) for condition in found.conditions] == [
        ("example.com/gate", "True"),
        ("PodReadyToStartContainers", "False"),
        ("Initialized", "True"),
        ("Ready", "True"),
        ("ContainersReady", "True"),
        ("PodScheduled", "True"),
    ]
    assert found.container_statuses[0].ready
    assert found.container_statuses[0].started


def test_disruption_target_is_carried_over(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    target = v1.PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet")
    test_kubelet.status_manager.set_pod_status(pod, v1.PodStatus(conditions=[target]))
    found = generate(test_kubelet, pod, runtime("c", State.RUNNING))
    assert [c.reason for c in found.conditions if c.type == "DisruptionTarget"] == ["TerminationByKubelet"]


@pytest.mark.parametrize(
    ("known", "api", "now", "phase", "reason"),
    [
        (v1.PodStatus(phase=FAILED, reason="Evicted"), v1.PodStatus(), State.RUNNING, FAILED, "Evicted"),
        (v1.PodStatus(phase=SUCCEEDED), v1.PodStatus(), State.RUNNING, SUCCEEDED, ""),
        (None, v1.PodStatus(phase=FAILED, reason="Old"), State.RUNNING, FAILED, "Old"),
        (v1.PodStatus(phase=RUNNING, reason="Why"), v1.PodStatus(), State.RUNNING, RUNNING, "Why"),
        (v1.PodStatus(phase=PENDING, reason="Why"), v1.PodStatus(), State.RUNNING, RUNNING, ""),
        (v1.PodStatus(phase=RUNNING), v1.PodStatus(phase=RUNNING, reason="Api"), State.RUNNING, RUNNING, "Api"),
        (None, v1.PodStatus(phase=SUCCEEDED), State.EXITED, SUCCEEDED, ""),
    ],
)
def test_phases_do_not_go_back(
    test_kubelet: TestKubelet, known: v1.PodStatus | None, api: v1.PodStatus, now: State, phase: str, reason: str
) -> None:
    pod = new_pod("p", restart_policy="Always")
    pod.status = api
    if known is not None:
        test_kubelet.status_manager.set_pod_status(pod, known)
    found = generate(
        test_kubelet, pod, runtime("c", now, 1 if now is State.EXITED else 0), terminal=now is State.EXITED
    )
    assert (found.phase, found.reason) == (phase, reason)


def test_pod_that_ran_is_pending_again_when_nothing_is_known_of_its_containers(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", restart_policy="Always")
    pod.status = v1.PodStatus(phase=RUNNING, reason="Why")
    found = generate(test_kubelet, pod)
    assert (found.phase, found.reason) == (PENDING, "")


@pytest.mark.parametrize(("deleted", "restarts"), [(False, 1), (True, 0)])
def test_pod_whose_container_is_lost_still_runs(test_kubelet: TestKubelet, deleted: bool, restarts: int) -> None:
    pod = new_pod("p", containers=[v1.Container(name="a")], restart_policy="Always")
    pod.metadata.deletion_timestamp = test_kubelet.clock.now() if deleted else None
    pod.status = v1.PodStatus(phase=RUNNING, container_statuses=[shown("a", state=is_running())])
    found = generate(test_kubelet, pod)
    assert found.phase == RUNNING
    assert [essence(status) for status in found.container_statuses] == [essence(lost("a", restarts))]
    by_type = {condition.type: (condition.status, condition.reason) for condition in found.conditions}
    assert by_type["Initialized"] == ("True", "")
    assert by_type["Ready"] == by_type["ContainersReady"] == ("False", "ContainersNotReady")


def test_pod_that_a_handler_ends_has_failed(test_kubelet: TestKubelet) -> None:
    class Deadline:
        def should_evict(self, pod: v1.Pod) -> lifecycle.ShouldEvictResponse:
            return lifecycle.ShouldEvictResponse(evict=True, reason="DeadlineExceeded", message="too long")

    test_kubelet.kubelet.pod_sync_handlers.append(Deadline())
    found = generate(test_kubelet, new_pod("p"), runtime("c", State.RUNNING))
    assert (found.phase, found.reason, found.message) == (FAILED, "DeadlineExceeded", "too long")


def test_restart_in_place_is_a_condition(test_kubelet: TestKubelet) -> None:
    codes = v1.ContainerRestartRuleOnExitCodes(operator="In", values=[42])
    rule = v1.ContainerRestartRule(action="RestartAllContainers", exit_codes=codes)
    container = v1.Container(name="c", restart_policy="Never", restart_policy_rules=[rule])
    pod = new_pod("p", containers=[container], restart_policy="Always")
    found = generate(test_kubelet, pod, runtime("c", State.EXITED, 42))
    assert [c.status for c in found.conditions if c.type == "AllContainersRestarting"] == ["True"]
    assert found.phase == RUNNING


# ---- Addresses ----


@pytest.mark.parametrize(
    ("node_ips", "given", "expected"),
    [
        ([], [], []),
        (["192.168.1.1"], ["10.0.0.1"], ["10.0.0.1"]),
        (["192.168.1.1"], ["fd01::1"], ["fd01::1"]),
        (["192.168.1.1"], ["fd01::1234", "10.0.0.1"], ["10.0.0.1", "fd01::1234"]),
        (["fd01::1"], ["10.0.0.1", "fd01::1234"], ["fd01::1234", "10.0.0.1"]),
        ([], ["fd01::1234", "10.0.0.1"], ["10.0.0.1", "fd01::1234"]),
        (["fd01::1"], ["1.1.1.1", "fd01::2", "10.0.0.1", "fd01::3"], ["fd01::2", "1.1.1.1"]),
        (["192.168.1.1"], ["fd01:0:0:0::1234", "010.000.0.01"], ["10.0.0.1", "fd01::1234"]),
        (["192.168.1.1"], ["::ffff:10.0.0.1"], ["10.0.0.1"]),
        (["192.168.1.1"], ["", "nonsense", "10.0.0.1"], ["10.0.0.1"]),
    ],
)
def test_sort_pod_ips(test_kubelet: TestKubelet, node_ips: list[str], given: list[str], expected: list[str]) -> None:
    test_kubelet.kubelet.node_ips = [ip_address(ip) for ip in node_ips]
    assert test_kubelet.kubelet.sort_pod_ips(given) == expected


@pytest.mark.parametrize(
    ("node_ips", "host_network", "runtime_ips", "host_ips", "pod_ips"),
    [
        (["10.0.0.1"], True, [], ["10.0.0.1"], ["10.0.0.1"]),
        (["10.0.0.1", "fd01::1"], True, [], ["10.0.0.1", "fd01::1"], ["10.0.0.1", "fd01::1"]),
        (["10.0.0.1", "fd01::1"], True, ["192.168.0.1"], ["10.0.0.1", "fd01::1"], ["192.168.0.1", "fd01::1"]),
        (["10.0.0.1", "fd01::1"], True, ["fd01::2"], ["10.0.0.1", "fd01::1"], ["fd01::2"]),
        (["10.0.0.1"], False, ["192.168.0.1"], ["10.0.0.1"], ["192.168.0.1"]),
        (["10.0.0.1"], False, [], ["10.0.0.1"], []),
    ],
)
def test_host_ips(
    test_kubelet: TestKubelet,
    node_ips: list[str],
    host_network: bool,
    runtime_ips: list[str],
    host_ips: list[str],
    pod_ips: list[str],
) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.node_ips, kubelet.kube_client = [ip_address(ip) for ip in node_ips], FakeClientset()
    pod = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("u")), spec=v1.PodSpec(host_network=host_network))
    status = kubelet.generate_api_pod_status(test_kubelet.ctx, pod, kubecontainer.PodStatus(ips=runtime_ips), False)
    assert [entry.ip for entry in status.host_ips] == host_ips
    assert [entry.ip for entry in status.pod_ips] == pod_ips
    assert (status.host_ip, status.pod_ip) == (host_ips[0], pod_ips[0] if pod_ips else "")


@pytest.mark.parametrize(
    ("sandbox", "now", "expected"),
    [
        (None, [], ["10.0.0.1"]),
        (runtimeapi.SANDBOX_NOTREADY, [], ["10.0.0.1"]),
        (runtimeapi.SANDBOX_READY, [], []),
        (runtimeapi.SANDBOX_READY, ["10.0.0.2"], ["10.0.0.2"]),
    ],
)
def test_pod_without_a_ready_sandbox_keeps_its_address(
    test_kubelet: TestKubelet, sandbox: runtimeapi.PodSandboxState.ValueType | None, now: list[str], expected: list[str]
) -> None:
    pod = new_pod("p")
    pod.status = v1.PodStatus(phase=SUCCEEDED, pod_ip="10.0.0.1", pod_ips=[v1.PodIP(ip="10.0.0.1")])
    sandboxes = [] if sandbox is None else [runtimeapi.PodSandboxStatus(state=sandbox)]
    pod_status = kubecontainer.PodStatus(ips=now, sandbox_statuses=sandboxes)
    found = test_kubelet.kubelet.generate_api_pod_status(test_kubelet.ctx, pod, pod_status, True)
    assert [entry.ip for entry in found.pod_ips] == expected
    assert found.pod_ip == (expected[0] if expected else "")


def test_standalone_kubelet_shows_no_host_ip(test_kubelet: TestKubelet) -> None:
    assert generate(test_kubelet, new_pod("p")).host_ip == ""


# ---- Pods of many containers ----


@pytest.mark.parametrize("state", [State.RUNNING, State.EXITED])
@pytest.mark.parametrize("step", ["generate", "set", "check", "compute"])
def test_work_for_a_pod_grows_with_its_containers_and_not_with_their_square(
    test_kubelet: TestKubelet, tmp_path: Path, state: State, step: str
) -> None:
    kubelet, manager = test_kubelet.kubelet, create_test_runtime_manager(str(tmp_path / "runtime")).manager

    def lines(count: int) -> int:
        pod = new_pod(f"p{count}", containers=[v1.Container(name=f"c{i}") for i in range(count)])
        pod.spec.init_containers = [v1.Container(name=f"i{i}") for i in range(count)]
        pod.spec.restart_policy = v1.RESTART_POLICY_NEVER
        statuses = [runtime(c.name, state) for c in pod.spec.containers]
        statuses += [runtime(c.name, State.EXITED) for c in pod.spec.init_containers]
        sandbox = runtimeapi.PodSandboxStatus(network=runtimeapi.PodSandboxNetworkStatus(ip="10.0.0.1"))
        pod_status = kubecontainer.PodStatus(
            container_statuses=statuses, active_container_statuses=statuses, sandbox_statuses=[sandbox]
        )
        shown = kubelet.generate_api_pod_status(test_kubelet.ctx, pod, pod_status, False)
        kubelet.status_manager.set_pod_status(pod, shown)
        shown = test_kubelet.status_of(pod.metadata.uid)
        calls: dict[str, Callable[[], object]] = {
            "generate": lambda: kubelet.generate_api_pod_status(test_kubelet.ctx, pod, pod_status, False),
            "set": lambda: kubelet.status_manager.set_pod_status(pod, shown),
            "check": lambda: check_container_state_transition(shown, shown, pod.spec),
            "compute": lambda: manager.compute_pod_actions(pod, pod_status, False),
        }
        calls[step]()  # The first call does work that is needed only once.
        return lines_run(calls[step])

    assert lines(100) < 15 * lines(10)
