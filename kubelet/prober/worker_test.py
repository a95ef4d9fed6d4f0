"""Test probe workers, most of them step by step on the test's own thread."""

from __future__ import annotations

import contextlib
import datetime
import threading
from typing import Any

import msgspec
import pytest
from framework.waiting import wait_for, wait_until_equal

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.prober import results
from kubelet.prober.prober import Prober, ProbeType
from kubelet.prober.testing import (
    CONTAINER_ID,
    CONTAINER_NAME,
    FakeRunner,
    ProbeWorld,
    new_pod,
    set_probe,
    terminated,
    waiting,
)
from kubelet.prober.worker import Worker
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.component_base.featuregate import testing as featuregatetesting
from pkg.golang.turn import MAX_TURNS, Turn
from pkg.util.testing import lines_run

CTX = golang.background()
LIVENESS, READINESS, STARTUP = ProbeType.LIVENESS, ProbeType.READINESS, ProbeType.STARTUP

all_types = pytest.mark.parametrize("probe_type", list(ProbeType))


def expect(world: ProbeWorld, worker: Worker, result: results.Result | None, hint: str = "") -> None:
    """Probe once more; check that the worker continues and that its container has this result."""
    assert worker.do_probe(CTX), hint
    assert world.result(worker.probe_type) == result, hint


@all_types
@pytest.mark.parametrize(
    ("case", "goes_on", "result"),
    [
        ("no status", set(ProbeType), None),
        ("pod failed", set(), None),
        ("pod succeeded", set(), None),
        ("pod is being deleted", {READINESS}, results.SUCCESS),
        ("no status of the container", set(ProbeType), None),
        ("container has no id", set(ProbeType), None),
        ("container waits", set(ProbeType), results.FAILURE),
        ("container ended", set(), results.FAILURE),
        ("probe succeeds", set(ProbeType), results.SUCCESS),
        ("initial delay is over", set(ProbeType), results.SUCCESS),
    ],
)
def test_do_probe(
    world: ProbeWorld, probe_type: ProbeType, case: str, goes_on: set[ProbeType], result: results.Result | None
) -> None:
    worker = world.worker(probe_type, initial_delay_seconds=10 if "delay" in case else 0)
    status = world.running(started=probe_type is not STARTUP, age=10)
    container = status.container_statuses[0]
    match case:
        case "pod failed":
            status.phase = v1.POD_FAILED
        case "pod succeeded":
            status.phase = v1.POD_SUCCEEDED
        case "pod is being deleted":
            worker.pod.metadata.deletion_timestamp = world.clock.now()
        case "no status of the container":
            container.name = "other"
        case "container has no id":
            container.container_id = ""
        case "container waits":
            status = waiting()
        case "container ended":
            status = terminated(0)
    if case != "no status":
        world.set_status(status)
    assert worker.do_probe(CTX) == (probe_type in goes_on)
    assert world.result(probe_type) == result


def rule(action: str, *codes: int) -> v1.ContainerRestartRule:
    on_exit = v1.ContainerRestartRuleOnExitCodes(operator="In", values=list(codes))
    return v1.ContainerRestartRule(action=action, exit_codes=on_exit)


@all_types
@pytest.mark.parametrize(
    ("policy", "rules", "exit_code", "goes_on"),
    [
        (None, [], 1, False),
        ("OnFailure", [], 1, True),
        ("OnFailure", [], 0, False),
        ("Always", [], 1, True),
        ("Always", [], 0, True),
        ("Never", [], 1, False),
        ("Never", [], 0, False),
        ("Never", [rule("Restart", 1)], 1, True),
        ("Never", [rule("Restart", 99)], 1, False),
        ("Never", [rule("RestartAllContainers", 1)], 1, True),
    ],
)
def test_container_that_ended_is_probed_again_only_if_it_is_restarted(
    world: ProbeWorld,
    probe_type: ProbeType,
    policy: str | None,
    rules: list[v1.ContainerRestartRule],
    exit_code: int,
    goes_on: bool,
) -> None:
    worker = world.worker(probe_type)
    worker.container.restart_policy, worker.container.restart_policy_rules = policy, rules
    world.set_status(terminated(exit_code))
    assert worker.do_probe(CTX) == goes_on
    assert world.result(probe_type) == results.FAILURE


@pytest.mark.parametrize("enabled", [True, False])
def test_container_that_another_one_restarts_is_probed_again(world: ProbeWorld, enabled: bool) -> None:
    worker = world.worker(LIVENESS)
    trigger = v1.Container(name="trigger", restart_policy="Never")
    trigger.restart_policy_rules = [rule("RestartAllContainers", 1)]
    worker.pod.spec.containers.append(trigger)
    status = terminated(1)
    ended = v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=1))
    status.container_statuses.append(v1.ContainerStatus(name="trigger", state=ended))
    world.set_status(status)
    gate = features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS
    with featuregatetesting.set_feature_gate_during_test(features.feature_gate, gate, enabled):
        assert worker.do_probe(CTX) == enabled


def test_work_for_a_pods_workers_grows_with_its_containers_and_not_with_their_square(world: ProbeWorld) -> None:
    """Each worker of a pod whose containers have all ended checks whether the whole pod must restart."""

    def lines(count: int) -> int:
        pod, status = new_pod(), terminated(1)
        found = status.container_statuses.pop()
        pod.metadata.uid, pod.spec.containers = types.UID(str(count)), []
        for name in (f"c{i}" for i in range(count)):
            container = v1.Container(name=name)
            set_probe(container, LIVENESS)
            pod.spec.containers.append(container)
            status.container_statuses.append(msgspec.structs.replace(found, name=name, container_id=f"x://{name}"))
        world.statuses.statuses[types.UID(str(count))] = status
        world.manager.add_pod(CTX, pod)
        workers = [worker for worker in world.manager.workers() if worker.pod is pod]
        assert len(workers) == count
        updates = world.manager.results_manager(LIVENESS).updates()

        def run() -> None:
            for worker in workers:
                worker.do_probe(CTX)
                while updates.try_recv()[2]:
                    pass

        run()  # This first run does the work that happens only once.
        world.statuses.statuses[types.UID(str(count))] = v1.deepcopy(status)
        return lines_run(run)

    try:
        assert lines(100) < 15 * lines(10)
    finally:
        world.manager.stop_all()


@all_types
def test_sidecar_that_ended_is_probed_again_whatever_the_pods_policy(world: ProbeWorld, probe_type: ProbeType) -> None:
    worker = world.sidecar_worker(probe_type)
    status = terminated(0)
    status.init_container_statuses, status.container_statuses = status.container_statuses, []
    world.set_status(status)
    expect(world, worker, results.FAILURE)


@pytest.mark.parametrize(
    ("probe_type", "initial"),
    [(LIVENESS, results.SUCCESS), (READINESS, results.FAILURE), (STARTUP, results.UNKNOWN)],
)
def test_initial_delay(world: ProbeWorld, probe_type: ProbeType, initial: results.Result) -> None:
    worker = world.worker(probe_type, initial_delay_seconds=10)
    world.set_status(world.running(started=probe_type is not STARTUP))
    world.clock.step(9)
    expect(world, worker, initial)
    assert world.runner.runs == 0
    world.clock.step(1)
    expect(world, worker, results.SUCCESS)


def test_initial_delay_when_the_clock_is_set_back(world: ProbeWorld) -> None:
    worker = world.worker(READINESS)
    world.set_status(world.running())
    world.clock.set_time(world.clock.now() - datetime.timedelta(hours=1))
    expect(world, worker, results.SUCCESS)


def test_failure_threshold(world: ProbeWorld) -> None:
    worker = world.worker(READINESS, failure_threshold=3)
    world.set_status(world.running())
    for _ in range(2):
        world.runner.succeed()
        for _ in range(3):
            expect(world, worker, results.SUCCESS)
        world.runner.fail()
        for n in range(1, 6):
            expect(world, worker, results.SUCCESS if n < 3 else results.FAILURE, f"failure {n}")


def test_success_threshold(world: ProbeWorld) -> None:
    worker = world.worker(READINESS, success_threshold=3)
    world.set_status(world.running())
    for _ in range(2):
        for n in range(1, 6):
            expect(world, worker, results.FAILURE if n < 3 else results.SUCCESS, f"success {n}")
        world.runner.fail()
        expect(world, worker, results.FAILURE)
        world.runner.succeed()


def test_state_says_how_many_equal_results_came_in_a_row(world: ProbeWorld) -> None:
    worker = world.worker(READINESS, failure_threshold=5)
    world.set_status(world.running())
    assert (worker.state.last_result, worker.state.result_run) == (None, 0)
    world.runner.fail()
    for _ in range(2):
        worker.do_probe(golang.background())
    assert (worker.state.last_result, worker.state.result_run) == (results.FAILURE, 2)
    assert worker.state.spec.failure_threshold == 5


def test_failures_are_counted_in_a_row(world: ProbeWorld) -> None:
    worker = world.worker(READINESS, failure_threshold=2)
    world.set_status(world.running())
    expect(world, worker, results.SUCCESS)
    for _ in range(3):
        world.runner.fail()
        expect(world, worker, results.SUCCESS)
        world.runner.succeed()
        expect(world, worker, results.SUCCESS)


def test_probe_that_could_not_be_carried_out_does_not_count(world: ProbeWorld) -> None:
    worker = world.worker(READINESS, failure_threshold=2)
    world.set_status(world.running())
    expect(world, worker, results.SUCCESS)
    world.runner.fail()
    expect(world, worker, results.SUCCESS)
    world.runner.break_down()
    for _ in range(5):
        expect(world, worker, results.SUCCESS)
    world.runner.fail()
    expect(world, worker, results.FAILURE, "the run of failures was not broken")


def test_fault_of_one_round_does_not_end_the_probing(world: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_pod_status(uid: str) -> v1.PodStatus | None:
        raise KeyError(uid)

    worker = world.worker(READINESS)
    world.set_status(world.running())
    with monkeypatch.context() as patched:
        patched.setattr(world.statuses, "get_pod_status", get_pod_status)
        expect(world, worker, None)
    expect(world, worker, results.SUCCESS)


@pytest.mark.parametrize("succeeds", [True, False])
def test_startup_probe_rests_once_it_has_answered(world: ProbeWorld, succeeds: bool) -> None:
    worker = world.worker(STARTUP, failure_threshold=3)
    world.set_status(world.running(started=False))
    if succeeds:
        expect(world, worker, results.SUCCESS)
    else:
        world.runner.fail()
        for result in (results.UNKNOWN, results.UNKNOWN, results.FAILURE):
            expect(world, worker, result)
    runs = world.runner.runs
    answer = world.result(STARTUP)
    world.runner.succeed()
    expect(world, worker, answer, "on hold")
    assert world.runner.runs == runs


@pytest.mark.parametrize("probe_type", [LIVENESS, STARTUP])
def test_failed_probe_is_on_hold_until_there_is_a_new_container(world: ProbeWorld, probe_type: ProbeType) -> None:
    worker = world.worker(probe_type)
    status = world.running(started=probe_type is not STARTUP)
    world.set_status(status)
    world.runner.fail()
    expect(world, worker, results.FAILURE)
    world.runner.succeed()
    expect(world, worker, results.FAILURE, "on hold")
    status.container_statuses[0].container_id = "test://new"
    assert worker.do_probe(CTX)
    assert world.result(probe_type, "test://new") == results.SUCCESS
    assert world.result(probe_type) is None, "the old container's result is forgotten"


@pytest.mark.parametrize("probe_type", [LIVENESS, STARTUP])
def test_restarted_container_gets_all_its_attempts(world: ProbeWorld, probe_type: ProbeType) -> None:
    worker = world.worker(probe_type, failure_threshold=3)
    status = world.running(started=probe_type is not STARTUP)
    world.set_status(status)
    world.runner.fail()
    for container_id in (str(CONTAINER_ID), "test://second", "test://third"):
        status.container_statuses[0].container_id = container_id
        found = []
        for _ in range(3):
            assert worker.do_probe(CTX)
            found.append(world.result(probe_type, container_id) == results.FAILURE)
        assert found == [False, False, True], container_id


def test_failed_readiness_probe_goes_on(world: ProbeWorld) -> None:
    worker = world.worker(READINESS)
    world.set_status(world.running())
    world.runner.fail()
    expect(world, worker, results.FAILURE)
    world.runner.succeed()
    expect(world, worker, results.SUCCESS)


@pytest.mark.parametrize(("probe_type", "initial"), [(LIVENESS, results.SUCCESS), (READINESS, results.FAILURE)])
def test_probes_wait_for_the_start(world: ProbeWorld, probe_type: ProbeType, initial: results.Result) -> None:
    worker = world.worker(probe_type)
    world.runner.fail()
    for started in (False, None):
        world.set_status(world.running(started=started))
        expect(world, worker, initial)
    assert world.runner.runs == 0
    world.set_status(world.running())
    expect(world, worker, results.FAILURE)


def test_startup_probe_ends_with_the_start(world: ProbeWorld) -> None:
    worker = world.worker(STARTUP, failure_threshold=2)
    world.set_status(world.running(started=False))
    world.runner.fail()
    expect(world, worker, results.UNKNOWN)
    world.set_status(world.running())
    for _ in range(3):
        expect(world, worker, results.UNKNOWN)
    assert world.runner.runs == 1


@all_types
@pytest.mark.parametrize("age", [300.0, 5.0, 0.0])
def test_restart_of_the_kubelet_flips_no_result(world: ProbeWorld, probe_type: ProbeType, age: float) -> None:
    worker = world.worker(probe_type, initial_delay_seconds=1000)
    world.set_status(world.running(age=age))
    initial = {LIVENESS: results.SUCCESS, READINESS: results.FAILURE, STARTUP: results.UNKNOWN}[probe_type]
    expect(world, worker, None if age > 0 else initial)


@pytest.mark.parametrize(
    ("probe_type", "started", "result"),
    [
        (STARTUP, True, results.SUCCESS),
        (STARTUP, False, None),
        (LIVENESS, True, None),
        (READINESS, True, None),
    ],
)
def test_restart_of_the_kubelet_leaves_a_sidecar_started(
    world: ProbeWorld, probe_type: ProbeType, started: bool, result: results.Result | None
) -> None:
    worker = world.sidecar_worker(probe_type, initial_delay_seconds=1000)
    status = world.running(started=started, age=300)
    status.init_container_statuses, status.container_statuses = status.container_statuses, []
    world.set_status(status)
    expect(world, worker, result)


def test_fault_of_a_round_does_not_end_the_probing(world: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world.worker(LIVENESS)

    def crash(uid: str) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(world.statuses, "get_pod_status", crash)
    assert worker.do_probe(CTX)


def test_cancelled_probe_ends_the_probing(world: ProbeWorld) -> None:
    worker = world.worker(LIVENESS)
    world.set_status(world.running())
    world.runner.err = golang.Canceled()
    assert worker.do_probe(CTX), "another context was cancelled"
    ctx, cancel = golang.with_cancel(CTX)
    cancel()
    assert not worker.do_probe(ctx)


# ---- Workers that the scheduler runs ----


class Running:
    """Run a worker on the manager's scheduler, and wait for its probes."""

    def __init__(self, world: ProbeWorld, **spec: int) -> None:
        self.world = world
        self.pod = new_pod()
        set_probe(self.pod.spec.containers[0], READINESS, **spec)
        world.set_status(world.running())
        world.manager.add_pod(CTX, self.pod)
        worker = world.manager._worker(self.pod, CONTAINER_NAME, READINESS)
        assert worker is not None
        self.worker = worker
        wait_for("the timekeeper waits for the next due time", lambda: world.clock.waiters() == 1)

    def step_to_first(self) -> None:
        """Move the clock to the worker's due time."""
        self.world.clock.step(self.worker._due + 0.001)

    def next_result(self) -> results.Result:
        update, ok = self.world.manager.results_manager(READINESS).updates().recv(timeout=30)
        assert ok
        assert update is not None
        return update.result

    def wait_for_round(self, runs: int) -> None:
        """Wait until the probe has run this many times."""
        wait_for(f"{runs} probes", lambda: self.world.runner.runs >= runs)


def test_worker_probes_at_each_period_and_cleans_up(world: ProbeWorld) -> None:
    running = Running(world, period_seconds=10)
    running.step_to_first()
    assert [running.next_result(), running.next_result()] == [results.FAILURE, results.SUCCESS]
    world.runner.fail()
    for n in range(2, 5):
        world.clock.step(9)
        assert world.runner.runs == n - 1
        world.clock.step(1)
        running.wait_for_round(n)
    assert running.next_result() == results.FAILURE
    for _ in range(10):
        world.manager.remove_pod(running.pod)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)
    assert world.result(READINESS) is None
    wait_for("the timekeeper has ended", lambda: world.clock.waiters() == 0)


def test_trigger_probes_at_once_and_begins_the_period_anew(world: ProbeWorld) -> None:
    running = Running(world, period_seconds=10)
    running.step_to_first()
    running.wait_for_round(1)
    world.clock.step(6)
    running.worker.trigger()
    running.wait_for_round(2)
    wait_for("the period restarts", lambda: running.worker._due == pytest.approx(world.clock.monotonic() + 10))
    world.clock.step(9)
    assert world.runner.runs == 2
    world.clock.step(1)
    running.wait_for_round(3)
    world.manager.remove_pod(running.pod)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


def test_trigger_does_not_wait_for_the_first_turn(world: ProbeWorld) -> None:
    running = Running(world, period_seconds=1000)
    running.worker.trigger()
    running.wait_for_round(1)
    world.manager.remove_pod(running.pod)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


@pytest.mark.parametrize("uptime", [0.0, 3600.0])
def test_probes_are_spread_over_the_period(world: ProbeWorld, uptime: float) -> None:
    """Probes are spread both for pods that exist when the kubelet starts and for pods that arrive together later."""
    world.clock.step(uptime)
    workers = []
    for n in range(20):
        pod = new_pod()
        pod.metadata.uid = types.UID(f"uid-{n}")
        set_probe(pod.spec.containers[0], LIVENESS, period_seconds=100)
        status = world.running()
        status.container_statuses[0].container_id = f"test://{n}"
        world.statuses.statuses[pod.metadata.uid] = status
        world.manager.add_pod(CTX, pod)
        workers.append(world.manager._worker(pod, CONTAINER_NAME, LIVENESS))
    wait_for("the timekeeper waits for the next due time", lambda: world.clock.waiters() == 1)
    for expected in (range(5, 16), range(20, 21), range(25, 36), range(40, 41)):
        world.clock.step(50)
        due = sum(worker is not None and worker._share_of_period() <= 0.5 for worker in workers)
        full, half = divmod(int(world.clock.monotonic() - uptime), 100)
        probed = 20 * full + (due if half else 0)
        assert probed in expected
        wait_until_equal("probes", lambda: world.runner.runs, probed)
    world.manager.stop_all()
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


def test_turns_are_the_same_after_a_restart_of_the_kubelet(world: ProbeWorld) -> None:
    share = world.worker(LIVENESS)._share_of_period()
    assert 0 <= share < 1
    assert ProbeWorld().worker(LIVENESS)._share_of_period() == share
    assert world.worker(READINESS)._share_of_period() != share


@pytest.mark.parametrize(("late", "next_due"), [(0.0, 10), (4.0, 10), (25.0, 30)])
def test_ticks_that_were_missed_are_not_made_up_for(world: ProbeWorld, late: float, next_due: float) -> None:
    worker = world.worker(LIVENESS, period_seconds=10)
    first = worker.due
    world.clock.step(first + late)
    assert worker.run_once(CTX, triggered=False)
    assert worker.due == pytest.approx(first + next_due)


@pytest.mark.parametrize("period", [0, -5])
def test_worker_without_a_period_does_not_run_without_a_pause(world: ProbeWorld, period: int) -> None:
    worker = world.worker(LIVENESS, period_seconds=period)
    world.clock.step(100)
    assert worker.run_once(CTX, triggered=False)
    assert worker.due > 100


def test_lateness_is_measured(world: ProbeWorld) -> None:
    def late(bound: str) -> float:
        samples = [sample for metric in metrics.PROBER_LATENESS.collect() for sample in metric.samples]
        return sum(each.value for each in samples if each.labels == {"probe_type": "Startup", "le": bound})

    worker = world.worker(STARTUP, period_seconds=10)
    before = late("2.5"), late("5.0")
    world.clock.step(worker.due + 3.0)
    worker.run_once(CTX, triggered=False)
    worker.run_once(CTX, triggered=True)
    assert (late("2.5"), late("5.0")) == (before[0], before[1] + 1)


def test_wait_for_a_turn_counts_as_late(world: ProbeWorld) -> None:
    worker = world.worker(STARTUP, period_seconds=10)
    world.clock.step(worker.due)
    waits = [Turn(world.manager.turns) for _ in range(MAX_TURNS)]
    with contextlib.ExitStack() as turns:
        for each in waits:
            turns.enter_context(each)
        probe = golang.go(worker.run_once, CTX, False, name="prober")
        wait_for("the probe waits for its turn", lambda: len(world.manager.turns._waiting) == 1)
        world.clock.step(13.0)
        due = worker.due
    probe.join(30)
    assert worker.due == due + 20


def test_worker_whose_results_nobody_reads_can_be_stopped(world: ProbeWorld) -> None:
    updates = world.manager.results_manager(READINESS).updates()
    while updates.try_send(results.Update(CONTAINER_ID, results.UNKNOWN, types.UID("other"))):
        pass
    Running(world).step_to_first()
    wait_for("a result", lambda: world.result(READINESS) is not None)
    world.manager.stop_all()
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)


def test_worker_that_waits_for_its_turn_can_be_stopped(world: ProbeWorld) -> None:
    pod = new_pod()
    set_probe(pod.spec.containers[0], READINESS, period_seconds=100)
    world.manager.add_pod(CTX, pod)
    world.manager.remove_pod(pod)
    wait_until_equal("probe workers", lambda: world.manager.worker_count(), 0)
    assert world.runner.runs == 0


def test_few_probes_work_at_a_time(world: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few probes use the interpreter at a time, although hundreds of threads may run probes."""
    turns, work, go_on = world.manager.turns, list[str](), threading.Event()

    def expand(command: list[str], envs: list[v1.EnvVar]) -> list[str]:
        work.append("")
        assert go_on.wait(30)
        return command

    monkeypatch.setattr(kubecontainer, "expand_container_command_only_static", expand)
    world.set_status(world.running())
    workers = [world.worker(READINESS) for _ in range(2 * MAX_TURNS)]
    threads = [golang.go(worker.run_once, CTX, True, name="prober") for worker in workers]
    wait_for("the other probes wait for their turn", lambda: len(turns._waiting) == MAX_TURNS)
    assert len(work) == MAX_TURNS
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert len(work) == 2 * MAX_TURNS
    assert turns._free == MAX_TURNS


def test_probe_whose_command_runs_lets_others_have_their_turn(world: ProbeWorld) -> None:
    free = list[int]()

    class Runner(FakeRunner):
        def run_in_container(self, *args: Any, **kwargs: Any) -> bytes:
            free.append(world.manager.turns._free)
            raise RuntimeError("runtime is down")

    world.manager.prober = Prober(Runner(), world.recorder)
    world.set_status(world.running())
    assert world.worker(READINESS).run_once(CTX, triggered=True)
    assert set(free) == {MAX_TURNS}
    assert world.manager.turns._free == MAX_TURNS
