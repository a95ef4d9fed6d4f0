"""Test the probe manager."""

from __future__ import annotations

import collections
import datetime
import io
import os
import resource
import threading
from typing import Any

import pytest
from framework import memory
from framework.waiting import wait_for, wait_until_equal

from kubelet import container as kubecontainer
from kubelet import prober
from kubelet.prober import results, scheduler
from kubelet.prober.prober import ProbeType
from kubelet.prober.status_index import StatusIndex
from kubelet.prober.testing import CONTAINER_NAME, POD_UID, ProbeWorld, new_pod, set_probe
from kubelet.prober.worker import Worker
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failing_once

CTX = golang.background()
LIVENESS, READINESS, STARTUP = ProbeType.LIVENESS, ProbeType.READINESS, ProbeType.STARTUP

Probes = set[tuple[str, str, ProbeType]]


def container(name: str, *probes: ProbeType, restart_policy: str | None = None) -> v1.Container:
    made = v1.Container(name=name, restart_policy=restart_policy)
    for probe_type in probes:
        set_probe(made, probe_type, period_seconds=1000)
    return made


def pod(uid: str, *containers: v1.Container, init: list[v1.Container] | None = None) -> v1.Pod:
    spec = v1.PodSpec(containers=list(containers), init_containers=init or [])
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid)), spec=spec)


def probes(world: ProbeWorld) -> Probes:
    with world.manager._lock:
        return {(key.pod_uid, key.container_name, key.probe_type) for key in world.manager._workers}


def stop(world: ProbeWorld) -> None:
    world.manager.stop_all()
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


def test_add_and_remove_pods(world: ProbeWorld) -> None:
    plain = pod("plain", container("a"), container("b"))
    probed = pod(
        "probed",
        container("none"),
        container("readiness", READINESS),
        container("none too"),
        container("liveness", LIVENESS),
        container("startup", STARTUP),
    )
    expected: Probes = {
        ("probed", "readiness", READINESS),
        ("probed", "liveness", LIVENESS),
        ("probed", "startup", STARTUP),
    }
    world.manager.add_pod(CTX, plain)
    assert probes(world) == set()
    world.manager.add_pod(CTX, probed)
    assert probes(world) == expected
    world.manager.add_pod(CTX, probed)
    world.manager.remove_pod(plain)
    assert probes(world) == expected
    world.manager.remove_pod(probed)
    wait_for("all probes have stopped", lambda: probes(world) == set())
    world.manager.remove_pod(probed)


@pytest.mark.parametrize("restart_policy", [None, v1.CONTAINER_RESTART_POLICY_ALWAYS])
def test_of_init_containers_only_sidecars_are_probed(world: ProbeWorld, restart_policy: str | None) -> None:
    init = container("init", LIVENESS, READINESS, STARTUP, restart_policy=restart_policy)
    probed = pod("u", container("main"), init=[container("first"), init])
    world.manager.add_pod(CTX, probed)
    expected = {("u", "init", probe_type) for probe_type in ProbeType} if restart_policy else set()
    assert probes(world) == expected
    world.manager.remove_pod(probed)
    wait_for("all probes have stopped", lambda: probes(world) == set())


def test_probes_cease_when_the_step_that_began_them_does_not(world: ProbeWorld) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    world.manager.add_pod(ctx, pod("u", container("c", READINESS)))
    cancel()
    assert probes(world) == {("u", "c", READINESS)}
    stop(world)


def test_snapshot(world: ProbeWorld) -> None:
    world.manager.add_pod(CTX, pod("u", container("c", READINESS)))
    (probe,) = world.manager.snapshot()
    assert (probe.pod_uid, probe.container, probe.probe_type) == ("u", "c", READINESS)
    assert (probe.last_result, probe.result_run) == (None, 0)
    period = probe.spec.period_seconds or 10
    assert 0 <= probe.due_in <= period
    stop(world)


def test_worker_that_could_not_be_scheduled_is_made_again(world: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    probed = pod("u", container("c", READINESS))
    planner = world.manager.scheduler
    monkeypatch.setattr(planner, "_wait_locked", failing_once(planner._wait_locked, MemoryError()))
    with pytest.raises(MemoryError):
        world.manager.add_pod(CTX, probed)
    assert (probes(world), planner._tasks) == (set(), {})
    world.manager.add_pod(CTX, probed)
    assert [entry[2].worker for entry in planner._waiting] == world.manager.workers() != []
    stop(world)


def test_terminating_pod_keeps_its_readiness_probes_and_its_sidecars(world: ProbeWorld) -> None:
    sidecar = container("sidecar", LIVENESS, restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS)
    probed = pod("u", container("c", LIVENESS, READINESS, STARTUP), init=[sidecar])
    world.manager.add_pod(CTX, probed)
    world.manager.stop_liveness_and_startup(probed)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 2)
    assert probes(world) == {("u", "c", READINESS), ("u", "sidecar", LIVENESS)}
    stop(world)


def test_cleanup_pods(world: ProbeWorld) -> None:
    for uid in ("keep", "clean up"):
        world.manager.add_pod(CTX, pod(uid, container("a", READINESS), container("b", LIVENESS, STARTUP)))
    for _ in range(10):
        world.manager.cleanup_pods({types.UID("keep")})
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 3)
    assert {uid for uid, _, _ in probes(world)} == {"keep"}
    world.manager.cleanup_pods(set())
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


def test_pod_that_is_gone_leaves_no_series_in_the_metrics(world: ProbeWorld) -> None:
    probed = pod("gone", container("c", READINESS))
    world.manager.add_pod(CTX, probed)
    worker = world.manager._worker(probed, "c", READINESS)
    assert worker is not None
    for result in results.Result:
        world.manager.observe(worker, result, 0.1)
    assert len(series("gone")) == 3
    world.manager.remove_pod(probed)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)
    wait_for("the pod's series are gone", lambda: series("gone") == [])


def series(pod_uid: str) -> list[str]:
    return [
        sample.labels["result"]
        for metric in prober.PROBER_RESULTS.collect()
        for sample in metric.samples
        if sample.labels.get("pod_uid") == pod_uid and sample.name.endswith("_total")
    ]


# ---- Malicious manifests, each tried in a process of its own ----

ALL_PROBES = (LIVENESS, READINESS, STARTUP)


def crowd(world: ProbeWorld, pods: int, containers: int) -> list[v1.Pod]:
    """Return running pods whose containers have three probes each, all with a period of one second."""
    made = []
    for number in range(pods):
        uid = f"uid-{number}"
        each = pod(uid, *(container(f"c{index}", *ALL_PROBES) for index in range(containers)))
        for one in each.spec.containers:
            for probe_type in ALL_PROBES:
                set_probe(one, probe_type, period_seconds=1)
        statuses = [
            v1.ContainerStatus(name=one.name, container_id=f"test://{uid}-{one.name}", state=RUNNING, started=True)
            for one in each.spec.containers
        ]
        world.statuses.statuses[types.UID(uid)] = v1.PodStatus(phase=v1.POD_RUNNING, container_statuses=statuses)
        made.append(each)
    return made


def forget_updates(world: ProbeWorld) -> None:
    """Read the results, as the sync loop does."""
    for probe_type in ALL_PROBES:
        updates = world.manager.results_manager(probe_type).updates()
        golang.go(collections.deque, updates, 0, name="reader")


def probe_a_crowd() -> None:
    """Run the 5,100 probes of one manifest with 1,700 containers five times."""
    world = ProbeWorld()
    forget_updates(world)
    (each,) = crowd(world, 1, 1700)
    world.manager.add_pod(CTX, each)
    assert world.manager.worker_count() == 5100
    for number in range(1, 6):
        world.clock.step(1)
        # Startup probes do not run because all containers have started.
        wait_until_equal("probes", lambda: world.runner.runs, number * 3400)
        assert threading.active_count() < 2 * scheduler.MAX_PROBES_PER_POD
    world.manager.remove_pod(each)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


def test_probe_that_hangs_ends_with_its_pod_and_the_next_of_that_uid_is_probed(world: ProbeWorld) -> None:
    asked: list[golang.Context] = []

    def hang(ctx: golang.Context, *args: object) -> bytes:
        asked.append(ctx)
        ctx.done().recv(30)
        raise ctx.err() or AssertionError("nobody has cancelled the probe")

    world.runner.run_in_container = hang  # type: ignore[method-assign]
    [probed] = crowd(world, 1, 1)
    # The startup probe does not run because the container has started.
    for count in (2, 4):
        world.manager.add_pod(CTX, probed)
        world.clock.step(10)
        wait_until_equal("probes", lambda: len(asked), count)
        world.manager.remove_pod(probed)
        wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)
    stop(world)


def test_manifest_of_5100_probes_stays_under_48_mib() -> None:
    assert memory.peak_growth("kubelet.prober.prober_manager_test", "probe_a_crowd") < 48


def run_out_of_threads() -> None:
    """Run pods whose probes hang in a process that may have only twelve threads."""
    os.setuid(54321)
    resource.setrlimit(resource.RLIMIT_NPROC, (12, 12))
    log = io.StringIO()
    klog.set_output(log)
    world = ProbeWorld()
    go_on = threading.Event()
    probed: set[str] = set()

    def hang(ctx: golang.Context, container_id: kubecontainer.ContainerID, *args: object) -> bytes:
        go_on.wait(30)
        probed.add(container_id.id)
        return b""

    world.runner.run_in_container = hang  # type: ignore[method-assign]
    forget_updates(world)
    pods = crowd(world, 40, 1)
    for each in pods:
        world.manager.add_pod(CTX, each)
    world.clock.step(1)
    wait_for("the lack of threads is logged", lambda: "Probes wait for a thread; retrying" in log.getvalue())
    assert "the limit is TasksMax of the unit, pids.max of the cgroup" in log.getvalue()
    go_on.set()
    wait_for("all pods are probed", lambda: len(probed) == len(pods))


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit of threads must be that of another user")
def test_node_without_threads_stays_under_16_mib_and_probes_all() -> None:
    assert memory.peak_growth("kubelet.prober.prober_manager_test", "run_out_of_threads") < 16


# ---- update_pod_status ----

RUNNING = v1.ContainerState(running=v1.ContainerStateRunning())
ENDED = v1.ContainerState(terminated=v1.ContainerStateTerminated())
FAILED = v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=1))


def status(name: str, state: v1.ContainerState = RUNNING, **fields: Any) -> v1.ContainerStatus:
    return v1.ContainerStatus(name=name, container_id=f"test://{name}", state=state, **fields)


def know(world: ProbeWorld, probe_type: ProbeType, name: str, result: results.Result) -> None:
    container_id = kubecontainer.ContainerID("test", name)
    world.manager.results_manager(probe_type).set(container_id, result, v1.Pod())


def test_update_pod_status(world: ProbeWorld) -> None:
    """No worker probes: the fake clock stands still, and there is no status that would let a worker probe."""
    spec = pod(
        POD_UID,
        container("unprobed", LIVENESS),
        container("probed ready", READINESS),
        container("probed pending", READINESS),
        container("probed unready", READINESS),
        container("not started", STARTUP),
        container("started", STARTUP),
        container("ended", READINESS),
        container("no probe"),
    )
    world.manager.add_pod(CTX, spec)
    know(world, READINESS, "probed ready", results.SUCCESS)
    know(world, READINESS, "probed unready", results.FAILURE)
    know(world, STARTUP, "started", results.SUCCESS)
    know(world, READINESS, "ended", results.SUCCESS)
    statuses = [status(c.name, ENDED if c.name == "ended" else RUNNING) for c in spec.spec.containers]
    pod_status = v1.PodStatus(phase=v1.POD_RUNNING, container_statuses=statuses)
    world.manager.update_pod_status(CTX, spec, pod_status)
    assert {s.name: (s.started, s.ready) for s in statuses} == {
        "unprobed": (True, True),
        "probed ready": (True, True),
        "probed pending": (True, False),
        "probed unready": (True, False),
        "not started": (False, False),
        "started": (True, True),
        "ended": (False, False),
        "no probe": (True, True),
    }
    stop(world)


@pytest.mark.parametrize(
    ("restart_policy", "expected"),
    [
        (
            None,
            {
                "not started": (False, False),
                "started": (True, False),
                "ended": (False, True),
                "failed": (False, False),
            },
        ),
        (
            v1.CONTAINER_RESTART_POLICY_ALWAYS,
            {
                "not started": (False, False),
                "started": (True, True),
                "ended": (False, False),
                "failed": (False, False),
            },
        ),
    ],
)
def test_update_pod_status_with_init_containers(
    world: ProbeWorld, restart_policy: str | None, expected: dict[str, tuple[bool, bool]]
) -> None:
    init = [container(name, restart_policy=restart_policy) for name in expected]
    sidecar = container("not started", STARTUP, restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS)
    world.manager.add_pod(CTX, pod(POD_UID, init=[sidecar]))
    know(world, STARTUP, "started", results.SUCCESS)
    states = {"ended": ENDED, "failed": FAILED}
    statuses = [status(name, states.get(name, RUNNING)) for name in expected]
    pod_status = v1.PodStatus(phase=v1.POD_RUNNING, init_container_statuses=statuses)
    world.manager.update_pod_status(CTX, pod(POD_UID, init=init), pod_status)
    assert {s.name: (s.started, s.ready) for s in statuses} == expected
    stop(world)


@pytest.mark.parametrize("sidecar", [False, True])
@pytest.mark.parametrize(
    ("age", "was_ready", "probed", "result", "ready"),
    [
        (300, True, True, None, True),
        (300, False, True, None, False),
        (300, True, True, results.FAILURE, False),
        (300, False, True, results.SUCCESS, True),
        (300, True, False, None, True),
        (300, False, False, None, True),
        # The age does not matter, but a container that started after the kubelet has no earlier probe result.
        (5, True, True, None, True),
        (-1, True, True, None, False),
    ],
)
def test_restart_of_the_kubelet_leaves_containers_ready(
    world: ProbeWorld,
    sidecar: bool,
    age: float,
    was_ready: bool,
    probed: bool,
    result: results.Result | None,
    ready: bool,
) -> None:
    policy = v1.CONTAINER_RESTART_POLICY_ALWAYS if sidecar else None
    made = container("c", *([READINESS] if probed else []), restart_policy=policy)
    spec = pod(POD_UID, init=[made]) if sidecar else pod(POD_UID, made)
    since = world.clock.now() - datetime.timedelta(seconds=age)
    found = status("c", v1.ContainerState(running=v1.ContainerStateRunning(started_at=since)))
    pod_status = v1.PodStatus(init_container_statuses=[found]) if sidecar else v1.PodStatus(container_statuses=[found])
    if age > 0:
        spec.status = v1.deepcopy(pod_status)
        for told in (*spec.status.init_container_statuses, *spec.status.container_statuses):
            told.ready = was_ready
    world.manager.add_pod(CTX, spec)
    if result is not None:
        know(world, READINESS, "c", result)
    world.manager.update_pod_status(CTX, spec, pod_status)
    assert found.ready == ready
    stop(world)


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_restart_of_the_kubelet_leaves_each_container_as_it_was(world: ProbeWorld, added: bool, ready: bool) -> None:
    """A container keeps its own readiness regardless of its age and of the pod's other containers, probed or not."""
    spec = pod(POD_UID, container("c", READINESS))
    found = status("c", v1.ContainerState(running=v1.ContainerStateRunning(started_at=world.clock.now())))
    found.ready = ready
    spec.status = v1.PodStatus(container_statuses=[v1.deepcopy(found)])
    if added:
        world.manager.add_pod(CTX, spec)
    found.ready = False
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[found]))
    assert found.ready == ready
    know(world, READINESS, "c", results.FAILURE)
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[found]))
    assert not found.ready
    stop(world)


@pytest.mark.parametrize("age", [300, 2])
def test_container_that_the_kubelet_before_started_last_is_not_ready_for_another_that_was(
    world: ProbeWorld, age: float
) -> None:
    """A container that replaced a ready one just before the earlier kubelet ended is not ready."""
    spec = pod(POD_UID, container("c", READINESS))
    since = world.clock.now() - datetime.timedelta(seconds=age)
    found = status("c", v1.ContainerState(running=v1.ContainerStateRunning(started_at=since)))
    before = v1.deepcopy(found)
    before.container_id, before.ready = "test://before", True
    conditions = [v1.PodCondition(type=v1.POD_READY, status=v1.CONDITION_TRUE)]
    spec.status = v1.PodStatus(container_statuses=[before], conditions=conditions)
    world.manager.add_pod(CTX, spec)
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[found]))
    assert not found.ready
    stop(world)


def test_container_that_broke_while_there_was_no_kubelet_is_unready_after_as_many_failures_as_ever(
    world: ProbeWorld,
) -> None:
    spec = new_pod()
    set_probe(spec.spec.containers[0], READINESS, failure_threshold=2)
    running = world.running(age=60)
    world.set_status(running)
    spec.status = v1.deepcopy(running)
    spec.status.container_statuses[0].ready = True
    world.runner.fail()
    worker = Worker(world.manager, READINESS, spec, spec.spec.containers[0], StatusIndex(spec))
    ready = []
    for _ in range(2):
        assert worker.do_probe(CTX)
        world.manager.update_pod_status(CTX, spec, running)
        ready.append(running.container_statuses[0].ready)
    assert ready == [True, False]


@pytest.mark.parametrize("age", [300, -1])
def test_restart_of_the_kubelet_leaves_static_pods_as_their_mirrors_tell(world: ProbeWorld, age: float) -> None:
    """Containers of a static pod keep the readiness in the mirror pod's status, which arrives later than the pod."""
    spec = pod(POD_UID, container("c", READINESS, STARTUP))
    world.manager.add_pod(CTX, spec)
    since = world.clock.now() - datetime.timedelta(seconds=age)
    found = status("c", v1.ContainerState(running=v1.ContainerStateRunning(started_at=since)))
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[found]))
    assert (found.started, found.ready) == (False, False)
    told = v1.deepcopy(found)
    told.started = told.ready = True
    world.manager.inherit(POD_UID, v1.PodStatus(container_statuses=[told]))
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[found]))
    assert (found.started, found.ready) == ((True, True) if age > 0 else (False, False))
    stop(world)


def test_restart_of_the_kubelet_leaves_containers_started(world: ProbeWorld) -> None:
    spec = pod(POD_UID, container("c", STARTUP))
    world.manager.add_pod(CTX, spec)
    was_started = status("c", started=True)
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[was_started]))
    assert was_started.started
    was_not = status("c", started=False)
    world.manager.update_pod_status(CTX, spec, v1.PodStatus(container_statuses=[was_not]))
    assert was_not.started is False
    stop(world)


def test_container_that_is_not_ready_is_probed_at_once(world: ProbeWorld) -> None:
    spec = new_pod()
    set_probe(spec.spec.containers[0], READINESS, period_seconds=1000)
    world.clock.step(3600)
    world.manager.add_pod(CTX, spec)
    running = world.running()
    world.manager.update_pod_status(CTX, spec, running)
    world.set_status(running)
    world.manager.probe_unready(spec, running)
    wait_for("the container is ready", lambda: world.result(READINESS) == results.SUCCESS)
    assert world.manager._worker(spec, CONTAINER_NAME, READINESS) is not None
    assert world.runner.runs == 1
    stop(world)


def test_after_a_restart_of_the_kubelet_probes_wait_for_their_turn(world: ProbeWorld) -> None:
    """Probes wait for their normal time after a restart, because the kubelet syncs all pods when it starts."""
    spec = new_pod()
    set_probe(spec.spec.containers[0], READINESS, period_seconds=1000)
    running = world.running(age=60)
    world.set_status(running)
    spec.status = v1.deepcopy(running)
    spec.status.container_statuses[0].ready = True
    world.manager.add_pod(CTX, spec)
    for _ in range(2):
        world.manager.update_pod_status(CTX, spec, running)
        assert running.container_statuses[0].ready
        world.manager.probe_unready(spec, running)
    running.container_statuses[0].ready = False
    world.manager.probe_unready(spec, running)
    worker = world.manager._worker(spec, CONTAINER_NAME, READINESS)
    assert worker is not None and not world.manager.scheduler._tasks[worker].triggered
    assert world.runner.runs == 0
    stop(world)
