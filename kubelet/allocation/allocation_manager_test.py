"""Test the allocation manager.

Go: pkg/kubelet/allocation/allocation_manager_test.go
"""

from __future__ import annotations

import datetime
import functools
import threading
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for

from kubelet import allocation, checkpointmanager, cm, lifecycle, metrics, status
from kubelet import types as kubetypes
from kubelet.allocation import AllocatedPod, allocation_manager, handlers
from kubelet.config.testing import FakeSourcesReady
from kubelet.container import testing as containertest
from kubelet.status.testing import FakePodDeletionSafetyProvider, FakePodStartupLatencyStateHelper
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting

Amounts = dict[str, resource.Quantity]


def amounts(cpu: str = "", memory: str = "") -> Amounts:
    texts = {"cpu": cpu, "memory": memory}
    return {name: resource.must_parse(text) for name, text in texts.items() if text}


def new_pod(name: str, *containers: v1.Container, **spec: Any) -> v1.Pod:
    metadata = metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(f"uid-{name}"), generation=1)
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(containers=list(containers), **spec))


def container(requests: Amounts, limits: Amounts | None = None, name: str = "c1", **fields: Any) -> v1.Container:
    resources = v1.ResourceRequirements(requests=requests, limits=limits or {})
    return v1.Container(name=name, image="i1", resources=resources, **fields)


class PodManager:
    """Provide the environment's pods to a status manager; none of them is a mirror pod."""

    def __init__(self, pods: dict[str, v1.Pod]) -> None:
        self.pods = pods

    def get_pod_by_uid(self, uid: str) -> v1.Pod | None:
        return self.pods.get(uid)

    def get_mirror_pod_by_pod(self, pod: v1.Pod) -> v1.Pod | None:
        return None

    def translate_pod_uid(self, uid: str) -> kubetypes.ResolvedPodUID:
        return kubetypes.ResolvedPodUID(uid)

    def get_uid_translations(self) -> tuple[Any, Any]:
        return {}, {}


class SwappingRuntime(containertest.FakeRuntime):
    """Fake a runtime in which the containers named in `swapping` use swap."""

    swapping: tuple[str, ...] = ()

    def get_container_swap_behavior(self, pod: v1.Pod, container: v1.Container) -> kubetypes.SwapBehavior:
        return kubetypes.LIMITED_SWAP if container.name in self.swapping else kubetypes.NO_SWAP


class StaticPolicies(cm.ContainerManagerStub):
    """Fake a container manager with these policies."""

    cpu, memory = "none", "None"

    def get_node_config(self) -> cm.NodeConfig:
        return cm.NodeConfig(cgroups_per_qos=False, cpu_manager_policy=self.cpu, memory_manager_policy=self.memory)


class Environment:
    """Run a manager on a node with 5 CPUs and 5 GiB, and record what it does.

    Go: makeAllocationManager
    """

    def __init__(self, *pods: v1.Pod, directory: str = "") -> None:
        self.pods: dict[str, v1.Pod] = {pod.metadata.uid: pod for pod in pods}
        self.synced: list[str] = []
        self.sources = FakeSourcesReady()
        self.recorder = FakeRecorder(100)
        self.clock = testingclock.FakeClock()
        self.runtime = SwappingRuntime()
        self.policies = StaticPolicies()
        self.status = status.Manager(
            None, PodManager(self.pods), FakePodDeletionSafetyProvider(), FakePodStartupLatencyStateHelper()
        )
        self.manager = allocation.Manager(
            directory,
            self.status,
            lambda pod: self.synced.append(pod.metadata.name),
            lambda: list(self.pods.values()),
            self.pods.get,
            self.sources,
            self.recorder,
            self.clock,
        )
        node = v1.Node(metadata=metav1.ObjectMeta(name="node"))
        node.status.allocatable = {**amounts("5", "5Gi"), "pods": resource.new_quantity(110)}
        node.status.capacity = node.status.allocatable
        predicates = lifecycle.PredicateAdmitHandler(
            lambda ctx, use_cache: node, lifecycle.AdmissionFailureHandlerStub(), lambda node_info, attributes: None
        )
        resizes = allocation.PodResizesAdmitHandler(self.policies, self.runtime, self.manager)
        self.manager.add_pod_admit_handlers([resizes, predicates])
        for pod in pods:
            self.manager.set_allocated_resources(pod)

    def resize(self, pod: v1.Pod, **changes: Any) -> v1.Pod:
        """Create a new generation of the pod whose first container has these requests and limits."""
        new = v1.deepcopy(pod)
        new.metadata.generation += 1
        containers = new.spec.containers or new.spec.init_containers
        for name, value in changes.items():
            if name == "pod_requests":
                assert new.spec.resources is not None
                new.spec.resources.requests = value
            else:
                setattr(containers[0].resources, name, value)
        self.pods[new.metadata.uid] = new
        return new

    def retry(self, pod: v1.Pod) -> None:
        self.manager.push_pending_resize(pod.metadata.uid)
        self.manager.retry_pending_resizes("test")

    def conditions(self, pod: v1.Pod) -> list[tuple[str, str, int]]:
        """Return the type, reason and generation of each resize condition."""
        found = self.status.get_pod_resize_conditions(pod.metadata.uid)
        return [(c.type, c.reason, c.observed_generation) for c in found]

    def allocated(self, pod: v1.Pod) -> v1.ResourceRequirements:
        found = self.manager.update_pod_from_allocation(pod).pod
        return (found.spec.containers or found.spec.init_containers)[0].resources


IN_PROGRESS = ("PodResizeInProgress", "", 2)
DEFERRED = ("PodResizePending", "Deferred", 2)
INFEASIBLE = ("PodResizePending", "Infeasible", 2)


# ---- update_pod_from_allocation ----


def test_update_pod_from_allocation(tmp_path: Path) -> None:
    first, second = container(amounts("1", "1Gi")), container(amounts("2", "2Gi"), name="c2")
    sidecar = container(amounts("100m"), name="sidecar", restart_policy="Always")
    init = container(amounts("3"), name="init")
    pod = new_pod("p", first, second, init_containers=[sidecar, init])
    environment = Environment(pod, directory=str(tmp_path))
    assert environment.manager.update_pod_from_allocation(pod) == AllocatedPod(pod, differs=False)
    unknown = new_pod("unknown", first)
    assert environment.manager.update_pod_from_allocation(unknown).pod is unknown

    wanted = v1.deepcopy(pod)
    wanted.spec.containers[0].resources.requests = amounts("4", "4Gi")
    wanted.spec.init_containers[0].resources.requests = amounts("4")
    wanted.spec.init_containers[1].resources.requests = amounts("4")
    before = v1.deepcopy(wanted)
    assert environment.manager.update_pod_from_allocation(wanted) == AllocatedPod(pod, differs=True)
    assert wanted == before, "the original pod is not modified"

    again = Environment(directory=str(tmp_path))
    assert again.manager.update_pod_from_allocation(wanted) == AllocatedPod(pod, differs=True), (
        "the allocation survives a restart"
    )
    assert (tmp_path / "allocated_pods_state").exists()


def test_pod_that_cannot_be_read_in_full_has_what_it_was_given() -> None:
    """A partially decoded pod keeps its allocation, because it still uses it and its new requests are unknown."""
    init = container(amounts("4"), name="init")
    sidecar = container(amounts("1"), name="sidecar", restart_policy="Always")
    pod = new_pod("p", container(amounts("1")), container(amounts("2"), name="c2"), init_containers=[init, sidecar])
    environment = Environment(pod)
    ended = v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=0))
    partial = v1.PartialPod(metadata=pod.metadata)
    partial.status.init_container_statuses = [v1.ContainerStatus(name="init", state=ended)]
    before = v1.deepcopy(partial)
    refused = environment.manager.add_pod([partial], new_pod("other", container(amounts("2"))))
    assert (refused.admit, refused.reason) == (False, "OutOfcpu")
    assert environment.manager.add_pod([partial], new_pod("small", container(amounts("1")))).admit
    known = environment.manager.update_pod_from_allocation(partial)
    found = known.pod
    assert isinstance(found, v1.PartialPod) and [c.name for c in found.spec.containers] == ["c1", "c2", "sidecar"]
    assert not known.differs and partial == before

    partial.spec = v1.deepcopy(pod.spec)
    partial.spec.containers[0].resources.requests = amounts("9")
    assert environment.manager.update_pod_from_allocation(partial) == AllocatedPod(partial, differs=False)


def test_amounts_that_are_the_same_are_no_difference() -> None:
    pod = new_pod("p", container(amounts("1", "1Gi")))
    environment = Environment(pod)
    same = v1.deepcopy(pod)
    same.spec.containers[0].resources.requests = amounts("1000m", "1024Mi")
    assert environment.manager.update_pod_from_allocation(same).pod is same


def test_init_containers_without_the_gate() -> None:
    pod = new_pod("p", container(amounts("1")), init_containers=[container(amounts("1"), name="init")])
    gate = features.IN_PLACE_POD_VERTICAL_SCALING_INIT_CONTAINERS
    with set_feature_gate_during_test(features.feature_gate, gate, False):
        manager = Environment(pod).manager
    assert manager.get_container_resource_allocation(pod.metadata.uid, "init") is None
    assert manager.get_container_resource_allocation(pod.metadata.uid, "c1") is not None


# ---- Resizes ----


@pytest.mark.parametrize(
    ("new_requests", "granted", "conditions"),
    [
        (amounts("500m", "500Mi"), True, [IN_PROGRESS]),
        (amounts("1500m", "500Mi"), True, [IN_PROGRESS]),
        (amounts("500m", "1500Mi"), True, [IN_PROGRESS]),
        (amounts("2500m", "2500Mi"), False, [DEFERRED]),
        (amounts("500m", "2500Mi"), False, [DEFERRED]),
        (amounts("1", "9Gi"), False, [DEFERRED]),
        (amounts("9", "1Gi"), False, [DEFERRED]),
        (amounts("1", "1Gi"), False, []),
        (amounts("2m", "1Gi"), True, [IN_PROGRESS]),
    ],
    ids=[
        "both less",
        "more cpu, less memory",
        "less cpu, more memory",
        "both more than there is now",
        "less cpu, more memory than there is now",
        "more memory than the node has",
        "more cpu than the node has",
        "no resize",
        "cpu to the least shares",
    ],
)
@pytest.mark.parametrize("kind", ["containers", "init_containers"])
def test_retry_pending_resizes(
    new_requests: Amounts, granted: bool, conditions: list[tuple[str, str, int]], kind: str
) -> None:
    old = container(amounts("1", "1Gi"))
    pod = new_pod("p", old) if kind == "containers" else new_pod("p", init_containers=[old])
    environment = Environment(pod, new_pod("other", container(amounts("3", "3Gi"))))
    resized = environment.resize(pod, requests=new_requests)
    environment.retry(resized)

    assert environment.conditions(pod) == conditions
    assert environment.allocated(resized).requests == (new_requests if granted else amounts("1", "1Gi"))
    assert environment.synced == (["p"] if conditions else [])
    reasons = {
        IN_PROGRESS: "Normal ResizeStarted Pod resize started:",
        DEFERRED: "Warning ResizeDeferred Pod resize OutOf",
    }
    events = environment.recorder.drain()
    assert len(events) == len(conditions)
    assert all(event.startswith(reasons[each]) for event, each in zip(events, conditions, strict=True))
    assert environment.manager.has_pending_resizes() == (conditions == [DEFERRED])


def test_deferred_resize_is_told_once_and_granted_later() -> None:
    pod, other = new_pod("p", container(amounts("1"))), new_pod("other", container(amounts("3")))
    environment = Environment(pod, other)
    resized = environment.resize(pod, requests=amounts("3"))
    environment.retry(resized)
    environment.retry(resized)
    message = "Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 5000"
    (condition,) = environment.status.get_pod_resize_conditions(pod.metadata.uid)
    assert condition.message == message
    assert len(environment.recorder.drain()) == 1
    assert set(environment.synced) == {"p"}

    del environment.pods[other.metadata.uid]
    with metricstesting.moves(metrics.POD_DEFERRED_ACCEPTED_RESIZES.labels("pods_removed")):
        environment.manager.retry_pending_resizes(allocation.TRIGGER_REASON_PODS_REMOVED)
    assert environment.conditions(pod) == [IN_PROGRESS]
    assert not environment.manager.has_pending_resizes()


def test_deferred_resize_leaves_the_one_in_progress() -> None:
    pod = new_pod("p", container(amounts("1")))
    environment = Environment(pod)
    first = environment.resize(pod, requests=amounts("2"))
    environment.retry(first)
    environment.status.set_pod_resize_in_progress_condition(pod.metadata.uid, "Error", "cannot", 2)
    second = environment.resize(first, requests=amounts("9"))
    environment.retry(second)
    assert environment.conditions(pod) == [("PodResizePending", "Deferred", 3), ("PodResizeInProgress", "Error", 2)]
    third = environment.resize(second, requests=amounts("3"))
    environment.retry(third)
    assert environment.conditions(pod) == [("PodResizeInProgress", "", 4)], "a new resize starts without the old error"


def test_reverted_resize_waits_no_more() -> None:
    pod = new_pod("p", container(amounts("1")))
    environment = Environment(pod)
    environment.retry(environment.resize(pod, requests=amounts("9")))
    environment.retry(environment.resize(pod, requests=amounts("1")))
    assert environment.conditions(pod) == []
    assert environment.synced == ["p", "p"]


@pytest.mark.parametrize(
    ("pod_requests", "conditions"),
    [
        (amounts("2", "2Gi"), [IN_PROGRESS]),
        (amounts("1200m", "1200Mi"), [IN_PROGRESS]),
        (amounts("2500m", "2500Mi"), [DEFERRED]),
        (amounts("1500m", "9Gi"), [DEFERRED]),
    ],
)
def test_resizes_of_pods_as_a_whole(pod_requests: Amounts, conditions: list[tuple[str, str, int]]) -> None:
    own = v1.ResourceRequirements(requests=amounts("1500m", "1500Mi"))
    pod = new_pod("p", container(amounts("1", "1Gi")), resources=own)
    environment = Environment(pod, new_pod("other", container(amounts("3", "3Gi"))))
    environment.retry(environment.resize(pod, pod_requests=pod_requests))
    assert environment.conditions(pod) == conditions
    allocated = environment.manager.get_pod_level_resource_allocation(pod.metadata.uid)
    assert allocated is not None
    assert allocated.requests == (pod_requests if conditions == [IN_PROGRESS] else own.requests)


def test_resize_of_a_pod_as_a_whole_without_the_gate() -> None:
    own = v1.ResourceRequirements(requests=amounts("1500m"))
    pod = new_pod("p", container(amounts("1")), resources=own)
    gate = features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING
    with set_feature_gate_during_test(features.feature_gate, gate, False):
        environment = Environment(pod)
        environment.retry(environment.resize(pod, pod_requests=amounts("1600m")))
        # Pod-level resources are not stored in this case, so they never seem to change.
        assert environment.conditions(pod) == []
        environment.retry(environment.resize(pod, requests=amounts("1100m")))
        assert environment.conditions(pod) == [IN_PROGRESS]


@pytest.mark.parametrize(
    ("policies", "new", "conditions", "metric"),
    [
        (("static", "None"), amounts("2", "1Gi"), [INFEASIBLE], "guaranteed_pod_cpu_manager_static_policy"),
        (("static", "None"), amounts("1", "2Gi"), [IN_PROGRESS], ""),
        (("none", "Static"), amounts("1", "2Gi"), [INFEASIBLE], "guaranteed_pod_memory_manager_static_policy"),
        (("none", "Static"), amounts("2", "1Gi"), [IN_PROGRESS], ""),
        (("none", "None"), amounts("2", "2Gi"), [IN_PROGRESS], ""),
    ],
)
def test_resizes_of_guaranteed_pods(
    policies: tuple[str, str], new: Amounts, conditions: list[tuple[str, str, int]], metric: str
) -> None:
    same = amounts("1", "1Gi")
    pod = new_pod("p", container(same, same))
    environment = Environment(pod)
    environment.policies.cpu, environment.policies.memory = policies
    with metricstesting.moves(metrics.POD_INFEASIBLE_RESIZES, 1 if metric else 0, reason_detail=metric):
        environment.retry(environment.resize(pod, requests=new, limits=new))
    assert environment.conditions(pod) == conditions
    if metric:
        (event,) = environment.recorder.drain()
        assert event.startswith("Warning ResizeInfeasible Pod resize Infeasible: {")
        assert "Resize is infeasible for Guaranteed Pods alongside" in event
    assert not environment.manager.has_pending_resizes(), "an infeasible resize is not retried"


@pytest.mark.parametrize(
    ("policy", "new", "refused"),
    [
        (None, amounts("1", "2Gi"), True),
        (None, amounts("2", "1Gi"), False),
        (v1.NOT_REQUIRED, amounts("1", "2Gi"), True),
        (v1.RESTART_CONTAINER, amounts("1", "2Gi"), False),
    ],
)
def test_resizes_with_swap(policy: str | None, new: Amounts, refused: bool) -> None:
    policies = [v1.ContainerResizePolicy(resource_name="memory", restart_policy=policy)] if policy else []
    pod = new_pod("p", container(amounts("1", "1Gi"), resize_policy=policies))
    environment = Environment(pod)
    environment.runtime.swapping = ("c1",)
    environment.retry(environment.resize(pod, requests=new))
    assert environment.conditions(pod) == [INFEASIBLE if refused else IN_PROGRESS]
    if refused:
        (condition,) = environment.status.get_pod_resize_conditions(pod.metadata.uid)
        assert condition.message == "In-place resize of containers with swap is not supported."
    assert handlers.disallow_resize_for_swappable_containers(environment.runtime, pod, pod) is False


def test_sort_pending_resizes() -> None:
    pods = [new_pod(f"p{i}", container(amounts("1", "1Gi"))) for i in range(7)]
    environment = Environment(*pods)
    resized = [environment.resize(pod, requests=amounts("1500m", "1500Mi")) for pod in pods]
    resized[0].spec.containers[0].resources.requests = amounts("1", "1Gi")
    resized[0].spec.resources = v1.ResourceRequirements(requests=amounts("500m", "500Mi"))
    resized[1].spec.containers[0].resources.requests = amounts("500m", "500Mi")
    resized[2].spec.priority = 100
    resized[3].status.qos_class = v1.POD_QOS_GUARANTEED
    for minute, waiting in ((1, resized[4]), (2, resized[5])):
        since = datetime.datetime(2026, 1, 1, 0, minute, tzinfo=datetime.UTC)
        deferred = v1.PodCondition(type=v1.POD_RESIZE_PENDING, reason="Deferred", last_transition_time=since)
        waiting.status.conditions = [deferred]
    environment.status.backfill_pod_resize_conditions(resized)
    expected = [pod.metadata.uid for pod in resized]
    for order in (expected, expected[::-1]):
        environment.manager._pods_with_pending_resizes = []
        for uid in order:
            environment.manager.push_pending_resize(uid)
            environment.manager.push_pending_resize(uid)
        found = environment.manager._pods_with_pending_resizes
        # The resizes that need no more resources come first, in any order.
        assert (sorted(found[:2]), found[2:]) == (expected[:2], expected[2:])


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([amounts("1500m", "1500Mi"), None], True),
        ([amounts("500m", "500Mi"), None], False),
        ([amounts("1500m", "500Mi"), None], True),
        ([amounts("500m", "1500Mi"), None], True),
        ([amounts("1500m", "1548Mi"), amounts("500m", "500Mi")], False),
        ([{}, None], False),
        ([None, None, amounts("1", "1Gi")], True),
    ],
)
def test_is_resize_increasing_requests(requests: list[Amounts | None], expected: bool) -> None:
    containers = [container(amounts("1", "1Gi")), container(amounts("1", "1Gi"), name="c2"), container({}, name="c3")]
    pod = new_pod("p", *containers)
    environment = Environment(pod)
    resized = v1.deepcopy(pod)
    for each, wanted in zip(resized.spec.containers, requests, strict=False):
        if wanted is not None:
            each.resources.requests = wanted
    assert environment.manager._is_resize_increasing_requests(resized) is expected


def test_sources_that_are_not_ready_grant_nothing() -> None:
    pod = new_pod("p", container(amounts("1")))
    environment = Environment(pod)
    environment.sources.ready = False
    resized = environment.resize(pod, requests=amounts("2"))
    environment.retry(resized)
    assert environment.conditions(pod) == []
    assert environment.manager.has_pending_resizes()
    environment.sources.ready = True
    environment.manager.retry_pending_resizes("test")
    assert environment.conditions(pod) == [IN_PROGRESS]


def test_pods_that_are_gone_are_forgotten() -> None:
    pod = new_pod("p", container(amounts("1")))
    environment = Environment(pod)
    environment.retry(environment.resize(pod, requests=amounts("9")))
    environment.pods.clear()
    environment.manager.retry_pending_resizes("test")
    assert not environment.manager.has_pending_resizes()


def test_what_waits_is_tried_again_from_time_to_time() -> None:
    pod, other = new_pod("p", container(amounts("1"))), new_pod("other", container(amounts("3")))
    environment = Environment(pod, other)
    ctx, cancel = golang.with_cancel(golang.background())
    environment.manager.run(ctx)
    try:
        environment.retry(environment.resize(pod, requests=amounts("3")))
        del environment.pods[other.metadata.uid]
        synced = threading.Event()
        environment.manager._trigger_pod_sync = lambda pod: synced.set()
        environment.clock.step(allocation_manager.RETRY_DELAY - 1)
        assert environment.conditions(pod) == [DEFERRED]
        environment.clock.step(1)
        assert synced.wait(30)
        assert environment.conditions(pod) == [IN_PROGRESS]
    finally:
        cancel()


def test_thread_that_waits_for_the_end_of_another_pod_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet can stop while its thread waits for pods that a growing critical pod preempts."""
    environment = Environment()
    ctx, cancel = golang.with_cancel(golang.background())

    def preempt(trigger: str) -> list[v1.Pod]:
        cancel()
        raise golang.Canceled

    monkeypatch.setattr(environment.manager, "_retry_pending_resizes", preempt)
    ticker = environment.clock.new_ticker(1)
    environment.clock.step(1)
    environment.manager._retry_periodically(ctx, ticker)
    assert environment.clock.waiters() == 0, "its ticker is stopped"


def test_full_disk_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = new_pod("p", container(amounts("1")))
    environment = Environment(pod)

    def full(pod: v1.Pod) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(environment.manager, "set_allocated_resources", full)
    environment.retry(environment.resize(pod, requests=amounts("2")))
    assert environment.conditions(pod) == []
    assert environment.manager.has_pending_resizes()
    environment.runtime.swapping = ("c1",)
    environment.retry(environment.resize(pod, requests=amounts("1", "1Gi")))
    assert environment.conditions(pod) == [INFEASIBLE]
    environment.retry(environment.resize(pod, requests=amounts("2")))
    assert environment.manager.has_pending_resizes(), "the new resize is feasible"
    assert environment.manager.add_pod([], new_pod("new", container(amounts("1")))).admit


def test_what_could_not_be_written_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resize that could not be stored is not allocated: the pod would lose its resources after a restart."""
    pod = new_pod("p", container(amounts("1")))
    environment = Environment(pod, directory=str(tmp_path))
    resized = environment.resize(pod, requests=amounts("2"))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpointmanager.CheckpointManager, "create_checkpoint", full)
        environment.retry(resized)
        assert environment.allocated(resized).requests == amounts("1")
        assert (environment.conditions(pod), environment.recorder.drain()) == ([], [])
    environment.retry(resized)
    assert environment.allocated(resized).requests == amounts("2")
    assert environment.conditions(pod) == [IN_PROGRESS]
    (event,) = environment.recorder.drain()
    assert event.startswith("Normal ResizeStarted")
    assert not environment.manager.has_pending_resizes()


# ---- Admission ----


def test_add_pod(tmp_path: Path) -> None:
    pod = new_pod("p", container(amounts("2")))
    environment = Environment(directory=str(tmp_path))
    assert environment.manager.add_pod([], pod).admit
    allocated = environment.manager.get_container_resource_allocation(pod.metadata.uid, "c1")
    assert allocated == pod.spec.containers[0].resources
    refused = environment.manager.add_pod([pod], new_pod("big", container(amounts("4"))))
    assert (refused.admit, refused.reason) == (False, "OutOfcpu")
    assert environment.manager.get_container_resource_allocation(types.UID("uid-big"), "c1") is None

    # When the next kubelet starts, the pod requests more than the node has, but keeps its old allocation.
    again = Environment(directory=str(tmp_path))
    wants = v1.deepcopy(pod)
    wants.spec.containers[0].resources.requests = amounts("9")
    assert again.manager.add_pod([wants], wants).admit
    assert again.allocated(wants).requests == amounts("2")
    assert again.manager.add_pod([wants], new_pod("fits", container(amounts("3")))).admit
    again.manager.remove_pod(pod.metadata.uid)
    assert not again.manager.add_pod([], wants).admit
    again.manager.remove_orphaned_pods(set())
    assert again.manager.get_container_resource_allocation(types.UID("uid-fits"), "c1") is None


def test_manager_without_a_directory_remembers_in_memory() -> None:
    pod = new_pod("p", container(amounts("1")))
    environment = Environment()
    manager = allocation.Manager(
        "", environment.status, lambda pod: None, list, lambda uid: None, environment.sources, environment.recorder
    )
    manager.set_allocated_resources(pod)
    assert manager.get_container_resource_allocation(pod.metadata.uid, "c1") is not None


def test_only_resizes_are_asked_about() -> None:
    environment = Environment()
    handler = allocation.PodResizesAdmitHandler(environment.policies, environment.runtime, environment.manager)
    attributes = lifecycle.PodAdmitAttributes(pod=new_pod("p"), operation=lifecycle.ADD_OPERATION)
    environment.policies.cpu = "static"
    assert handler.admit(attributes).admit


@failures
def test_resize_that_cannot_be_tried_waits_and_the_others_are_granted(
    monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    bad, other = new_pod("bad", container(amounts("1"))), new_pod("other", container(amounts("1")))
    environment = Environment(bad, other)
    handle = environment.manager._handle_pod_resources_resize
    monkeypatch.setattr(environment.manager, "_handle_pod_resources_resize", failing_once(handle, err, "bad"))
    resized = [environment.resize(pod, requests=amounts("2")) for pod in (bad, other)]
    for pod in resized:
        environment.manager.push_pending_resize(pod.metadata.uid)
    environment.manager.retry_pending_resizes(allocation.TRIGGER_REASON_POD_UPDATED)
    assert [environment.allocated(pod).requests for pod in resized] == [amounts("1"), amounts("2")]
    environment.manager.retry_pending_resizes(allocation.TRIGGER_REASON_POD_UPDATED)
    assert environment.allocated(resized[0]).requests == amounts("2")


@failures
def test_periodic_retry_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    environment = Environment()
    tries: golang.Channel[None] = golang.Channel(10)

    def retry(trigger: str) -> list[v1.Pod]:
        tries.send(None)
        raise err

    monkeypatch.setattr(environment.manager, "_retry_pending_resizes", retry)
    ctx, cancel = golang.with_cancel(golang.background())
    with golang.ThreadGroup() as group:
        environment.manager.run(ctx)
    for _ in range(2):
        environment.clock.step(allocation_manager.INITIAL_RETRY_DELAY)
        assert tries.recv(30)[1]
    cancel()
    assert group.join(30) == []


def test_nobody_waits_for_pods_that_are_in_the_way_of_a_resize() -> None:
    """The manager's own thread preempts the pods without the lock, and afterwards the pods no longer count."""
    pod, victim = new_pod("p", container(amounts("1"))), new_pod("victim", container(amounts("4")))
    environment = Environment(pod, victim)
    manager = environment.manager
    ended: golang.Channel[str] = golang.Channel(10)

    def end() -> list[v1.Pod]:
        manager.has_pending_resizes()  # This call would block forever if the lock were held.
        ended.send(threading.current_thread().name)
        return [victim]

    class Preempts:
        def admit(self, attributes: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
            if attributes.other_pods:
                return lifecycle.PodAdmitResult(False, "RoomIsToBeMade", "waits", wait=True, make_room=end)
            return lifecycle.PodAdmitResult(admit=True)

    manager._admit_handlers.clear()
    manager.add_pod_admit_handlers([Preempts()])
    ctx, cancel = golang.with_cancel(golang.background())
    with golang.ThreadGroup() as group:
        manager.run(ctx)
    resized = environment.resize(pod, requests=amounts("2"))
    environment.retry(resized)
    assert ended.recv(30) == ("allocation-manager", True)
    wait_for("no resize is pending", lambda: not manager.has_pending_resizes())
    assert environment.allocated(resized).requests == amounts("2")
    cancel()
    assert group.join(30) == []


def test_nobody_is_ended_for_a_resize_that_was_withdrawn_meanwhile() -> None:
    """Pods are not preempted for a resize that was withdrawn during the grace period of another resize's victims."""
    first, second = new_pod("first", container(amounts("1"))), new_pod("second", container(amounts("1")))
    victims = {name: new_pod(f"victim-of-{name}", container(amounts("1"))) for name in ("first", "second")}
    environment = Environment(first, second, *victims.values())
    manager = environment.manager
    ended: list[str] = []

    def end(name: str) -> list[v1.Pod]:
        ended.append(name)
        environment.pods[second.metadata.uid] = second
        return [victims[name]]

    class Preempts:
        def admit(self, attributes: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
            name = attributes.pod.metadata.name
            if any(other.metadata.name == f"victim-of-{name}" for other in attributes.other_pods):
                make_room = functools.partial(end, name)
                return lifecycle.PodAdmitResult(False, "RoomIsToBeMade", "waits", wait=True, make_room=make_room)
            return lifecycle.PodAdmitResult(admit=True)

    manager._admit_handlers.clear()
    manager.add_pod_admit_handlers([Preempts()])
    resized = environment.resize(first, requests=amounts("2"))
    for pod in (resized, environment.resize(second, requests=amounts("2"))):
        manager.push_pending_resize(pod.metadata.uid)
    manager.retry_pending_resizes("test")
    ctx, cancel = golang.with_cancel(golang.background())
    with golang.ThreadGroup() as group:
        manager.run(ctx)
    wait_for("no resize is pending", lambda: not manager.has_pending_resizes())
    cancel()
    assert group.join(30) == []
    assert ended == ["first"]
    assert environment.allocated(resized).requests == amounts("2")
    assert environment.allocated(second).requests == amounts("1")
