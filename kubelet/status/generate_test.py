"""Test the conditions that the kubelet owns."""

from __future__ import annotations

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import status
from pkg.api.core import v1
from pkg.apimachinery import types

TRUE, FALSE = v1.CONDITION_TRUE, v1.CONDITION_FALSE
RUNNING, PENDING, SUCCEEDED, FAILED = v1.POD_RUNNING, v1.POD_PENDING, v1.POD_SUCCEEDED, v1.POD_FAILED


def spec(*containers: str, init: str = "", sidecars: str = "", gates: str = "") -> v1.PodSpec:
    """Return a spec with containers, init containers, sidecars and readiness gates of these names."""
    always = v1.CONTAINER_RESTART_POLICY_ALWAYS
    return v1.PodSpec(
        containers=[v1.Container(name=name) for name in containers],
        init_containers=[
            *(v1.Container(name=name) for name in init.split()),
            *(v1.Container(name=name, restart_policy=always) for name in sidecars.split()),
        ],
        readiness_gates=[v1.PodReadinessGate(condition_type=name) for name in gates.split()],
    )


def ready(*names: str) -> list[v1.ContainerStatus]:
    return [v1.ContainerStatus(name=name, ready=True) for name in names]


def unready(*names: str) -> list[v1.ContainerStatus]:
    return [v1.ContainerStatus(name=name) for name in names]


def started(name: str, value: bool) -> v1.ContainerStatus:
    return v1.ContainerStatus(name=name, started=value)


NOT_READY, UNKNOWN = status.CONTAINERS_NOT_READY, status.UNKNOWN_CONTAINER_STATUSES

CONTAINERS_READY_CASES = [
    (spec(), None, RUNNING, (FALSE, UNKNOWN, "")),
    (spec(), [], RUNNING, (TRUE, "", "")),
    (spec("1234"), [], RUNNING, (FALSE, NOT_READY, "containers with unknown status: [1234]")),
    (spec("1234", "5678"), ready("1234", "5678"), RUNNING, (TRUE, "", "")),
    (
        spec("1234", "5678"),
        ready("1234"),
        RUNNING,
        (FALSE, NOT_READY, "containers with unknown status: [5678]"),
    ),
    (
        spec("1234", "5678"),
        ready("1234") + unready("5678"),
        RUNNING,
        (FALSE, NOT_READY, "containers with unready status: [5678]"),
    ),
    (
        spec("a", "b", "c", "d"),
        unready("b", "d"),
        RUNNING,
        (
            FALSE,
            NOT_READY,
            "containers with unknown status: [a c], containers with unready status: [b d]",
        ),
    ),
    (spec("1234"), unready("1234"), SUCCEEDED, (FALSE, status.POD_COMPLETED, "")),
    (spec("1234"), ready("1234"), FAILED, (FALSE, status.POD_FAILED, "")),
    (
        spec("regular-1", sidecars="sidecar-1"),
        ready("regular-1"),
        RUNNING,
        (FALSE, NOT_READY, "containers with unknown status: [sidecar-1]"),
    ),
    (
        spec("regular-1", sidecars="sidecar-1 sidecar-2"),
        ready("sidecar-1", "sidecar-2", "regular-1"),
        RUNNING,
        (TRUE, "", ""),
    ),
    (
        spec("regular-1", sidecars="sidecar-1 sidecar-2"),
        ready("sidecar-1", "regular-1"),
        RUNNING,
        (FALSE, NOT_READY, "containers with unknown status: [sidecar-2]"),
    ),
    (
        spec("regular-1", sidecars="sidecar-1 sidecar-2"),
        ready("sidecar-1", "regular-1") + unready("sidecar-2"),
        RUNNING,
        (FALSE, NOT_READY, "containers with unready status: [sidecar-2]"),
    ),
    (spec("regular-1", init="init-1"), ready("regular-1"), RUNNING, (TRUE, "", "")),
]


@pytest.mark.parametrize(("pod_spec", "statuses", "phase", "expected"), CONTAINERS_READY_CASES)
def test_generate_containers_ready_condition(
    pod_spec: v1.PodSpec,
    statuses: list[v1.ContainerStatus] | None,
    phase: str,
    expected: tuple[str, str, str],
) -> None:
    pod = v1.Pod(spec=pod_spec)
    got = status.generate_containers_ready_condition(pod, v1.PodStatus(), statuses, phase)
    want_status, reason, message = expected
    assert got == v1.PodCondition(type=v1.CONTAINERS_READY, status=want_status, reason=reason, message=message)


@pytest.mark.parametrize(("pod_spec", "statuses", "phase", "expected"), CONTAINERS_READY_CASES)
def test_generate_pod_ready_condition(
    pod_spec: v1.PodSpec,
    statuses: list[v1.ContainerStatus] | None,
    phase: str,
    expected: tuple[str, str, str],
) -> None:
    """A pod without readiness gates is ready when its containers are, and otherwise has their reason."""
    pod = v1.Pod(spec=pod_spec)
    got = status.generate_pod_ready_condition(pod, v1.PodStatus(), [], statuses, phase)
    want_status, reason, message = expected
    assert got == v1.PodCondition(type=v1.POD_READY, status=want_status, reason=reason, message=message)


def _absent(gate: str) -> str:
    return f'corresponding condition of pod readiness gate "{gate}" does not exist.'


def _false(gate: str) -> str:
    return f'the status of pod readiness gate "{gate}" is not "True", but False'


GATES = status.READINESS_GATES_NOT_READY


@pytest.mark.parametrize(
    ("pod_spec", "conditions", "statuses", "expected"),
    [
        (spec(gates="gate1"), {}, [], (FALSE, GATES, _absent("gate1"))),
        (spec(gates="gate1"), {"gate1": FALSE}, [], (FALSE, GATES, _false("gate1"))),
        (spec(gates="gate1"), {"gate1": TRUE}, [], (TRUE, "", "")),
        (spec(gates="gate1 gate2"), {"gate1": TRUE}, [], (FALSE, GATES, _absent("gate2"))),
        (
            spec(gates="gate1 gate2"),
            {"gate1": TRUE, "gate2": FALSE},
            [],
            (FALSE, GATES, _false("gate2")),
        ),
        (
            spec(gates="gate1 gate2"),
            {"gate2": FALSE},
            [],
            (FALSE, GATES, f"{_absent('gate1')}, {_false('gate2')}"),
        ),
        (spec(gates="gate1 gate2"), {"gate1": TRUE, "gate2": TRUE}, [], (TRUE, "", "")),
        (
            spec("1234", gates="gate1"),
            {"gate1": TRUE},
            unready("1234"),
            (FALSE, NOT_READY, "containers with unready status: [1234]"),
        ),
    ],
)
def test_generate_pod_ready_condition_with_gates(
    pod_spec: v1.PodSpec,
    conditions: dict[str, str],
    statuses: list[v1.ContainerStatus],
    expected: tuple[str, str, str],
) -> None:
    given = [v1.PodCondition(type=type, status=value) for type, value in conditions.items()]
    pod = v1.Pod(spec=pod_spec)
    got = status.generate_pod_ready_condition(pod, v1.PodStatus(), given, statuses, RUNNING)
    want_status, reason, message = expected
    assert got == v1.PodCondition(type=v1.POD_READY, status=want_status, reason=reason, message=message)


ONE, TWO = spec("regular", init="1234"), spec("regular", init="1234 5678")
SIDECAR = spec("regular", sidecars="1234")
REGULAR_RUNS = v1.ContainerStatus(name="regular", state=v1.ContainerState(running=v1.ContainerStateRunning()))
REGULAR_ENDED = v1.ContainerStatus(name="regular", state=v1.ContainerState(terminated=v1.ContainerStateTerminated()))
INIT_WAITS = v1.ContainerStatus(name="1234", state=v1.ContainerState(waiting=v1.ContainerStateWaiting()))
NOT_INITIALIZED = status.CONTAINERS_NOT_INITIALIZED


@pytest.mark.parametrize(
    ("pod_spec", "statuses", "phase", "expected"),
    [
        (TWO, None, RUNNING, (FALSE, UNKNOWN, "")),
        (spec(), None, RUNNING, (TRUE, "", "")),
        (spec(), [], RUNNING, (TRUE, "", "")),
        (ONE, [], RUNNING, (FALSE, NOT_INITIALIZED, "containers with unknown status: [1234]")),
        (TWO, ready("1234", "5678"), RUNNING, (TRUE, "", "")),
        (TWO, ready("1234"), RUNNING, (FALSE, NOT_INITIALIZED, "containers with unknown status: [5678]")),
        (
            TWO,
            ready("1234") + unready("5678"),
            RUNNING,
            (FALSE, NOT_INITIALIZED, "containers with incomplete status: [5678]"),
        ),
        (ONE, ready("1234"), SUCCEEDED, (TRUE, status.POD_COMPLETED, "")),
        (
            SIDECAR,
            [started("1234", False)],
            PENDING,
            (FALSE, NOT_INITIALIZED, "containers with incomplete status: [1234]"),
        ),
        (SIDECAR, [started("1234", True)], RUNNING, (TRUE, "", "")),
        (SIDECAR, [started("1234", False), REGULAR_RUNS], RUNNING, (TRUE, "", "")),
        (ONE, [INIT_WAITS, REGULAR_ENDED], RUNNING, (TRUE, "", "")),
    ],
)
def test_generate_pod_initialized_condition(
    pod_spec: v1.PodSpec,
    statuses: list[v1.ContainerStatus] | None,
    phase: str,
    expected: tuple[str, str, str],
) -> None:
    pod = v1.Pod(spec=pod_spec)
    got = status.generate_pod_initialized_condition(pod, v1.PodStatus(), statuses, phase)
    want_status, reason, message = expected
    assert got == v1.PodCondition(type=v1.POD_INITIALIZED, status=want_status, reason=reason, message=message)


def test_a_pod_that_restarts_in_place_stays_initialized() -> None:
    old = v1.PodStatus(conditions=[v1.PodCondition(type=v1.POD_INITIALIZED, status=TRUE)])
    got = status.generate_pod_initialized_condition(v1.Pod(spec=ONE), old, [INIT_WAITS], RUNNING)
    assert got.status == TRUE


def _sandbox(state: runtimeapi.PodSandboxState.ValueType, ip: str) -> runtimeapi.PodSandboxStatus:
    return runtimeapi.PodSandboxStatus(
        metadata=runtimeapi.PodSandboxMetadata(),
        network=runtimeapi.PodSandboxNetworkStatus(ip=ip),
        state=state,
    )


@pytest.mark.parametrize(
    ("sandboxes", "expected"),
    [
        pytest.param([], FALSE, id="no sandbox"),
        pytest.param([_sandbox(runtimeapi.SANDBOX_NOTREADY, "")], FALSE, id="not ready"),
        pytest.param([_sandbox(runtimeapi.SANDBOX_READY, "")], FALSE, id="ready, but without address"),
        pytest.param([_sandbox(runtimeapi.SANDBOX_READY, "10.0.0.10")], TRUE, id="ready"),
    ],
)
def test_generate_pod_ready_to_start_containers_condition(
    sandboxes: list[runtimeapi.PodSandboxStatus], expected: str
) -> None:
    pod_status = kubecontainer.PodStatus(id=types.UID(""), sandbox_statuses=sandboxes)
    got = status.generate_pod_ready_to_start_containers_condition(v1.Pod(), v1.PodStatus(), pod_status)
    assert got == v1.PodCondition(type=v1.POD_READY_TO_START_CONTAINERS, status=expected)


def _status(name: str, state: kubecontainer.State, exit_code: int = 0) -> kubecontainer.Status:
    container_status = kubecontainer.Status(id=kubecontainer.ContainerID("test", name), name=name)
    container_status.state = state
    container_status.exit_code = exit_code
    return container_status


EXITED, STATE_RUNNING = kubecontainer.CONTAINER_STATE_EXITED, kubecontainer.CONTAINER_STATE_RUNNING
RESTARTING = v1.PodStatus(conditions=[v1.PodCondition(type=v1.ALL_CONTAINERS_RESTARTING, status=TRUE)])
RESTARTED = (TRUE, "RestartAllContainersStarted", "container exited with restart policy rule")


@pytest.mark.parametrize(
    ("statuses", "old", "phase", "expected"),
    [
        pytest.param([], v1.PodStatus(), PENDING, (FALSE, "", ""), id="pending"),
        pytest.param([], v1.PodStatus(), FAILED, (FALSE, status.POD_FAILED, ""), id="failed"),
        pytest.param([], v1.PodStatus(), SUCCEEDED, (FALSE, status.POD_COMPLETED, ""), id="succeeded"),
        pytest.param(
            [_status("container1", STATE_RUNNING), _status("trigger", EXITED, 42)],
            v1.PodStatus(),
            RUNNING,
            RESTARTED,
            id="triggered",
        ),
        pytest.param(
            [_status("container1", EXITED), _status("trigger", EXITED, 42)],
            RESTARTING,
            RUNNING,
            RESTARTED,
            id="cleaning up",
        ),
        pytest.param([], RESTARTING, PENDING, (FALSE, "", ""), id="cleaned up"),
    ],
)
def test_generate_all_containers_restarting_condition(
    statuses: list[kubecontainer.Status], old: v1.PodStatus, phase: str, expected: tuple[str, str, str]
) -> None:
    rule = v1.ContainerRestartRule(
        action=v1.CONTAINER_RESTART_RULE_ACTION_RESTART_ALL_CONTAINERS,
        exit_codes=v1.ContainerRestartRuleOnExitCodes(operator="In", values=[42]),
    )
    pod = v1.Pod(spec=spec("container1", "trigger"))
    pod.spec.containers[1].restart_policy = v1.CONTAINER_RESTART_POLICY_NEVER
    pod.spec.containers[1].restart_policy_rules = [rule]
    pod_status = kubecontainer.PodStatus(id=types.UID(""), container_statuses=statuses)
    got = status.generate_all_containers_restarting_condition(pod, pod_status, old, phase)
    assert (got.type, got.status, got.reason, got.message) == (v1.ALL_CONTAINERS_RESTARTING, *expected)


def test_conditions_say_which_generation_they_are_of() -> None:
    pod = v1.Pod()
    pod.metadata.generation = 7
    for condition in (
        status.generate_containers_ready_condition(pod, v1.PodStatus(), [], RUNNING),
        status.generate_pod_ready_condition(pod, v1.PodStatus(), [], [], RUNNING),
        status.generate_pod_initialized_condition(pod, v1.PodStatus(), [], RUNNING),
    ):
        assert condition.observed_generation == 7
