"""Test preemption.

Go: pkg/kubelet/preemption/preemption_test.go
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubelet import lifecycle, metrics
from kubelet import types as kubetypes
from kubelet.preemption import CriticalPodAdmissionHandler
from kubelet.preemption.preemption import (
    AdmissionRequirement,
    AdmissionRequirementList,
    PreemptionError,
    get_pods_to_preempt,
    smaller_resource_request,
)
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.metrics import testing as metricstesting

MIB = 1 << 20
CRITICAL = kubetypes.SYSTEM_CRITICAL_PRIORITY
OTHER_REASON = lifecycle.PredicateFailureError("mock name", "mock reason")


def make_pod(
    name: str, requests: dict[str, str] | None = None, guaranteed: bool = False, priority: int | None = None
) -> v1.Pod:
    amounts = {key: resource.must_parse(text) for key, text in (requests or {}).items()}
    resources = v1.ResourceRequirements(requests=amounts, limits=dict(amounts) if guaranteed else {})
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(name), generation=7),
        spec=v1.PodSpec(priority=priority, containers=[v1.Container(name="c", resources=resources)]),
    )


SOME = {"cpu": "100m", "memory": "100Mi"}
MUCH = {"cpu": "300m", "memory": "300Mi"}
PODS = {
    pod.metadata.name: pod
    for pod in (
        make_pod("best-effort"),
        make_pod("cluster-critical", SOME, priority=CRITICAL),
        make_pod("node-critical", SOME, priority=CRITICAL + 100),
        make_pod("burstable", SOME),
        make_pod("guaranteed", SOME, guaranteed=True),
        make_pod("high-burstable", MUCH),
        make_pod("high-guaranteed", MUCH, guaranteed=True),
        make_pod("high", SOME, priority=100),
        make_pod("low", SOME, priority=10),
    )
}
ALL = ("cluster-critical", "best-effort", "burstable", "high-burstable", "guaranteed", "high-guaranteed")


def pods_of(*names: str) -> list[v1.Pod]:
    return [PODS[name] for name in names]


def requirements(cpu: int = 0, memory: int = 0, pods: int = 0) -> AdmissionRequirementList:
    """Return requirements; cpu is in millicores, and memory in MiB."""
    amounts = {"cpu": cpu, "memory": memory * MIB, "pods": pods}
    return AdmissionRequirementList(AdmissionRequirement(name, amount) for name, amount in amounts.items() if amount)


class _Killer:
    def __init__(self, err: Exception | None = None) -> None:
        self.killed: list[v1.Pod] = []
        self.statuses: list[v1.PodStatus] = []
        self.err = err

    def kill(
        self, pod: v1.Pod, evict: bool, grace: int | None, status_fn: Callable[[v1.PodStatus], None] | None
    ) -> None:
        assert evict and grace is None and status_fn is not None
        if self.err is not None:
            raise self.err
        self.killed.append(pod)
        status = v1.PodStatus(phase=v1.POD_RUNNING)
        status_fn(status)
        self.statuses.append(status)


def handle(
    killer: _Killer, pods: list[v1.Pod], admit: str, reasons: list[lifecycle.PredicateFailureReason]
) -> tuple[list[lifecycle.PredicateFailureReason], list[str]]:
    """Return the remaining reasons and the events."""
    recorder = FakeRecorder(20)
    handler = CriticalPodAdmissionHandler(killer.kill, recorder)
    left = handler.handle_admission_failure(golang.background(), PODS[admit], reasons, pods)
    match left:
        case [lifecycle.RoomIsToBeMade() as room]:
            assert (killer.killed, recorder.drain()) == ([], []), "no pod is killed before make_room is called"
            assert {pod.metadata.name for pod in room.make_room()} <= {pod.metadata.name for pod in pods}
            left = []
    return left, recorder.drain()


def lacking(name: str, amount: int) -> lifecycle.InsufficientResourceError:
    return lifecycle.InsufficientResourceError(name, requested=amount, used=amount, capacity=amount)


@pytest.mark.parametrize(
    ("pods", "admit", "reasons", "killed", "left"),
    [
        pytest.param(
            ["burstable"], "guaranteed", [lacking("memory", MIB)], [], [lacking("memory", MIB)], id="not critical"
        ),
        pytest.param(
            ["burstable"],
            "guaranteed",
            [lacking("memory", MIB), OTHER_REASON],
            [],
            [lacking("memory", MIB), OTHER_REASON],
            id="not critical, and another reason",
        ),
        pytest.param(
            ["burstable"],
            "cluster-critical",
            [lacking("memory", MIB), OTHER_REASON],
            [],
            [OTHER_REASON],
            id="another reason: nobody has to go",
        ),
        pytest.param(
            ALL,
            "cluster-critical",
            [lacking("memory", 550 * MIB)],
            ["high-burstable", "high-guaranteed"],
            [],
            id="several have to go",
        ),
    ],
)
def test_handle_admission_failure(
    pods: list[str],
    admit: str,
    reasons: list[lifecycle.PredicateFailureReason],
    killed: list[str],
    left: list[lifecycle.PredicateFailureReason],
) -> None:
    killer = _Killer()
    assert handle(killer, pods_of(*pods), admit, reasons)[0] == left
    assert [pod.metadata.name for pod in killer.killed] == killed


@pytest.mark.parametrize(
    ("pods", "lacks"),
    [
        pytest.param(["cluster-critical"], lacking("pods", 1), id="critical pods stay"),
        pytest.param(["best-effort"], lacking("memory", MIB), id="they would free nothing"),
    ],
)
def test_handle_admission_failure_without_victims(pods: list[str], lacks: lifecycle.InsufficientResourceError) -> None:
    killer = _Killer()
    amount = lacks.get_insufficient_amount()
    message = (
        rf"^preemption: error finding a set of pods to preempt: .*\[\(res: {lacks.resource_name}, q: {amount}\), \]$"
    )
    with pytest.raises(PreemptionError, match=message):
        handle(killer, pods_of(*pods), "cluster-critical", [lacks])
    assert killer.killed == []


def test_what_a_victim_is_told() -> None:
    killer = _Killer()
    with metricstesting.moves(metrics.PREEMPTIONS.labels("cpu")):
        _, told = handle(killer, pods_of("burstable"), "cluster-critical", [lacking("cpu", 50)])
    assert told == ["Warning Preempting Preempted in order to admit critical pod"]
    (status,) = killer.statuses
    assert (status.phase, status.reason) == (v1.POD_FAILED, "Preempting")
    assert status.message == "Preempted in order to admit critical pod"
    (condition,) = status.conditions
    assert (condition.type, condition.status, condition.reason) == ("DisruptionTarget", "True", "TerminationByKubelet")
    assert condition.message == "Pod was preempted by Kubelet to accommodate a critical pod."
    assert condition.observed_generation == 7


def test_a_victim_that_does_not_die_in_time_counts_as_room() -> None:
    killer = _Killer(TimeoutError("timeout waiting to kill pod"))
    left, told = handle(killer, pods_of(*ALL), "cluster-critical", [lacking("memory", 550 * MIB)])
    assert (left, len(told)) == ([], 2)


def test_an_end_of_the_kubelet_is_no_failed_kill() -> None:
    with pytest.raises(golang.Canceled):
        handle(_Killer(golang.Canceled()), pods_of(*ALL), "cluster-critical", [lacking("memory", 550 * MIB)])


@pytest.mark.parametrize(
    ("preemptor", "pods", "required", "expected"),
    [
        pytest.param("cluster-critical", [], requirements(), [], id="nothing required"),
        pytest.param("cluster-critical", [], requirements(pods=1), None, id="no pods"),
        pytest.param(
            "cluster-critical", ["burstable"], requirements(100, 100, 1), ["burstable"], id="just as much as required"
        ),
        pytest.param("cluster-critical", ["burstable"], requirements(200, 200, 2), None, id="less than required"),
        pytest.param(
            "cluster-critical",
            ["burstable", "best-effort"],
            requirements(pods=1),
            ["best-effort"],
            id="best-effort before burstable",
        ),
        pytest.param(
            "cluster-critical",
            ["burstable", "guaranteed"],
            requirements(pods=1),
            ["burstable"],
            id="burstable before guaranteed",
        ),
        pytest.param(
            "cluster-critical",
            ["best-effort", "high-burstable", "burstable"],
            requirements(100, 100),
            ["burstable"],
            id="the smaller one if it does",
        ),
        pytest.param(
            "cluster-critical",
            ["best-effort", "burstable", "high-burstable"],
            requirements(150, 150),
            ["high-burstable"],
            id="the larger one if the smaller does not do",
        ),
        pytest.param(
            "cluster-critical",
            ["best-effort", "burstable", "high-burstable", "guaranteed", "high-guaranteed"],
            requirements(350, 350),
            ["high-burstable", "burstable"],
            id="several",
        ),
        pytest.param(
            "cluster-critical",
            ["best-effort", "burstable", "high-burstable", "guaranteed", "high-guaranteed"],
            requirements(memory=550),
            ["high-burstable", "high-guaranteed"],
            id="guaranteed ones if they must, and no burstable one too many",
        ),
        pytest.param(
            "node-critical",
            ["cluster-critical"],
            requirements(100),
            ["cluster-critical"],
            id="cluster-critical for node-critical",
        ),
        pytest.param(
            "cluster-critical",
            ["node-critical"],
            requirements(100),
            None,
            id="not node-critical for cluster-critical",
        ),
        pytest.param("high", ["low"], requirements(100), ["low"], id="by priority"),
        pytest.param("low", ["high"], requirements(100), None, id="not against priority"),
        pytest.param("cluster-critical", ["high", "low"], requirements(100), ["low"], id="the last of equals"),
    ],
)
def test_get_pods_to_preempt(
    preemptor: str, pods: list[str], required: AdmissionRequirementList, expected: list[str] | None
) -> None:
    given = pods_of(*pods)
    if expected is None:
        with pytest.raises(PreemptionError, match="no set of running pods found to reclaim resources"):
            get_pods_to_preempt(PODS[preemptor], given, required)
        return
    assert [pod.metadata.name for pod in get_pods_to_preempt(PODS[preemptor], given, required)] == expected


@pytest.mark.parametrize(
    ("required", "pod", "expected"),
    [
        (requirements(), "burstable", 0.0),
        (requirements(100, 100, 1), "best-effort", 2.0),
        (requirements(100, 100, 1), "burstable", 0.0),
        (requirements(50, 50), "burstable", 0.0),
        (requirements(200), "burstable", 0.25),
    ],
)
def test_admission_requirements_distance(required: AdmissionRequirementList, pod: str, expected: float) -> None:
    assert required.distance(PODS[pod]) == expected


@pytest.mark.parametrize(
    ("initial", "pod", "expected"),
    [
        (requirements(), "burstable", requirements()),
        (requirements(100, 100, 1), "best-effort", requirements(100, 100)),
        (requirements(100, 100, 1), "burstable", requirements()),
        (requirements(50, 50), "burstable", requirements()),
        (requirements(200, 200, 1), "burstable", requirements(100, 100)),
    ],
)
def test_admission_requirements_subtract(
    initial: AdmissionRequirementList, pod: str, expected: AdmissionRequirementList
) -> None:
    assert initial.subtract(PODS[pod]) == expected


LOW = make_pod("low-memory", {"memory": "50Mi", "cpu": "100m"})
HIGH_MEMORY = make_pod("high-memory", {"memory": "200Mi", "cpu": "100m"})
HIGH_CPU = make_pod("high-cpu", {"memory": "50Mi", "cpu": "200m"})


@pytest.mark.parametrize(
    ("pod1", "pod2", "expected"),
    [
        pytest.param(LOW, make_pod("none"), False, id="something against nothing"),
        pytest.param(LOW, HIGH_MEMORY, True, id="less memory"),
        pytest.param(HIGH_MEMORY, HIGH_CPU, False, id="memory before cpu"),
        pytest.param(LOW, HIGH_CPU, True, id="less cpu"),
        pytest.param(LOW, LOW, True, id="equal"),
        pytest.param(
            make_pod("much", {"storage": "300Mi"}),
            make_pod("little", {"storage": "200Mi"}),
            True,
            id="nothing else counts",
        ),
    ],
)
def test_smaller_resource_request(pod1: v1.Pod, pod2: v1.Pod, expected: bool) -> None:
    assert smaller_resource_request(pod1, pod2) is expected
