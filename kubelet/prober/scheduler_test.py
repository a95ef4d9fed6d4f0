"""Test how probe workers share threads."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest
from framework.waiting import threads_named, wait_for, wait_until_equal

from kubelet.prober import scheduler
from kubelet.prober.scheduler import MAX_PROBES_PER_POD, MAX_THREADS, Scheduler
from pkg import golang
from pkg.apimachinery import types
from pkg.apimachinery.clock.testing import FakeClock
from pkg.golang.testing import out_of_threads


class Probe:
    """Run every ten seconds; a probe that hangs runs until it is released."""

    def __init__(self, world: World, pod_uid: str, due: float = 0.0, hangs: bool = False) -> None:
        self._world = world
        self._pod_uid = types.UID(pod_uid)
        self._due = due
        self.let_go = threading.Event()
        if not hangs:
            self.let_go.set()
        self.runs: list[bool] = []
        self.contexts: list[golang.Context] = []
        self.ended = 0
        self.goes_on = True
        self.err: Exception | None = None

    @property
    def pod_uid(self) -> types.UID:
        return self._pod_uid

    @property
    def due(self) -> float:
        return self._due

    def run_once(self, ctx: golang.Context, triggered: bool) -> bool:
        self._due = self._world.clock.monotonic() + 10
        with self._world.lock:
            self._world.order.append(self)
            self._world.running += 1
            self._world.most_running = max(self._world.most_running, self._world.running)
        self.contexts.append(ctx)
        self.runs.append(triggered)
        self.let_go.wait(30)
        with self._world.lock:
            self._world.running -= 1
        if self.err is not None:
            raise self.err
        return self.goes_on

    def end(self) -> None:
        self.ended += 1


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.scheduler = Scheduler(self.ctx, self.clock)
        self.lock = threading.Lock()  # This lock guards the fields below.
        self.order: list[Probe] = []
        self.running = 0
        self.most_running = 0
        self.probes: list[Probe] = []

    def add(self, pod_uid: str, due: float = 0.0, hangs: bool = False) -> Probe:
        probe = Probe(self, pod_uid, due, hangs)
        self.probes.append(probe)
        self.scheduler.add(probe)
        self.scheduler.tend()
        return probe

    def threads(self) -> int:
        return len(threads_named("prober-")) - 1

    def close(self) -> None:
        self.cancel()
        self.scheduler.end_all()
        for probe in self.probes:
            probe.let_go.set()
        wait_for("all probes have ended", lambda: all(probe.ended == 1 for probe in self.probes))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


class EagerTimekeeper:
    """Wrap the scheduler's lock, and dispatch tasks after each release, as a waiting timekeeper would."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = scheduler._lock
        self._dispatching = threading.local()

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()
        if not getattr(self._dispatching, "now", False):
            self._dispatching.now = True
            self._scheduler._dispatch()
            self._dispatching.now = False


def test_pod_has_no_more_threads_than_probes_that_run_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.scheduler, "_lock", EagerTimekeeper(world.scheduler))
    probes = [world.add("pod") for _ in range(10 * MAX_PROBES_PER_POD)]
    for turn in range(1, 4):
        wait_until_equal("rounds of all probes", lambda: {len(probe.runs) for probe in probes}, {turn})
        wait_for("the timekeeper waits for the next due time", lambda: world.clock.waiters() == 1)
        world.clock.step(10)
    assert world.threads() <= MAX_PROBES_PER_POD


def test_worker_runs_when_it_is_due(world: World) -> None:
    probe = world.add("pod", due=5.0)
    world.clock.step(4)
    assert probe.runs == []
    world.clock.step(1)
    wait_for("the probe ran", lambda: probe.runs == [False])
    wait_for("the timekeeper waits for the next due time", lambda: world.clock.waiters() == 1)
    world.clock.step(10)
    wait_for("the probe ran twice", lambda: probe.runs == [False, False])


def test_workers_run_in_the_order_in_which_they_are_due(world: World) -> None:
    first = world.add("pod", hangs=True)
    wait_for("the first probe ran", lambda: first.runs == [False])
    rest = [world.add("pod", due=float(due), hangs=True) for due in range(1, MAX_PROBES_PER_POD)]
    world.clock.step(20)
    wait_for("as many probes run as a pod may have at a time", lambda: world.running == MAX_PROBES_PER_POD)
    late = [world.add("pod", due=due) for due in (30.0, 25.0, 28.0)]
    world.clock.step(15)
    wait_for("three probes wait for a thread", lambda: len(world.scheduler._pods[types.UID("pod")].queue) >= 3)
    rest[0].let_go.set()
    wait_for("all late probes ran", lambda: all(probe.runs for probe in late))
    assert [probe for probe in world.order if probe in late] == [late[1], late[2], late[0]]


def test_pod_whose_probes_hang_holds_up_no_other(world: World) -> None:
    hanging = [world.add("hanging", hangs=True) for _ in range(3 * MAX_PROBES_PER_POD)]
    wait_for("as many probes run as a pod may have at a time", lambda: world.running == MAX_PROBES_PER_POD)
    other = world.add("other")
    wait_for("the other pod's probe ran", lambda: other.runs == [False])
    assert sum(len(probe.runs) for probe in hanging) == MAX_PROBES_PER_POD
    for probe in hanging:
        probe.let_go.set()
    wait_for("all probes that hung ran", lambda: all(probe.runs for probe in hanging))


def test_pods_whose_probes_hang_take_no_more_threads_than_there_are(world: World) -> None:
    pods = 2 * MAX_THREADS // MAX_PROBES_PER_POD
    for number in range(pods):
        for _ in range(MAX_PROBES_PER_POD):
            world.add(f"pod-{number}", hangs=True)
    wait_for("all threads run probes", lambda: world.running >= MAX_THREADS)
    late = [world.add(f"late-{number}") for number in range(5)]
    wait_for("all late probes ran", lambda: all(probe.runs for probe in late))
    with world.scheduler._lock:
        assert world.scheduler._take_locked(thread_is_free=False) is None, "no other probe gets one"
    # Beyond the shared threads, there is one thread for each pod that had none.
    assert world.most_running <= MAX_THREADS + pods + len(late)
    assert world.threads() <= MAX_THREADS + pods + len(late)


def test_worker_that_waits_costs_no_thread(world: World) -> None:
    for number in range(5000):
        world.add(f"pod-{number % 250}", due=100.0 + number)
    assert world.threads() <= 0


def test_thread_without_work_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_IDLE_TIMEOUT", 0.0)
    hanging = [world.add("pod", hangs=True) for _ in range(4)]
    wait_for("four threads are left", lambda: world.threads() == 4)
    for probe in hanging:
        probe.let_go.set()
    wait_for("no thread is left", lambda: world.threads() == 0)
    world.clock.step(100)
    wait_for("all probes ran again", lambda: all(len(probe.runs) > 1 for probe in hanging))


def test_trigger_runs_a_worker_at_once_and_moves_its_turn(world: World) -> None:
    probe = world.add("pod", due=8.0)
    world.clock.step(4)
    world.scheduler.trigger(probe)
    wait_for("the probe ran for its trigger", lambda: probe.runs == [True])
    world.clock.step(9)
    assert probe.runs == [True], "the due time at 8 no longer counts"
    wait_for("the timekeeper waits for the next due time", lambda: world.clock.waiters() == 1)
    world.clock.step(1)
    wait_for("the probe ran when it was due after its trigger", lambda: probe.runs == [True, False])


def test_trigger_of_a_worker_that_runs_has_it_run_again(world: World) -> None:
    probe = world.add("pod", hangs=True)
    wait_for("the probe ran", lambda: probe.runs == [False])
    for _ in range(3):
        world.scheduler.trigger(probe)
    probe.let_go.set()
    wait_for("the probe ran again for its trigger", lambda: probe.runs == [False, True])


def test_worker_that_is_stopped_ends_once(world: World) -> None:
    waiting, running = world.add("pod", due=1000.0), world.add("pod", hangs=True)
    queued = [world.add("pod", hangs=True) for _ in range(2 * MAX_PROBES_PER_POD)]
    wait_for("as many probes run as a pod may have at a time", lambda: world.running == MAX_PROBES_PER_POD)
    for probe in (waiting, running, *queued):
        world.scheduler.stop(probe)
        world.scheduler.stop(probe)
    assert waiting.ended == 1, "it did not run, so it ends at once"
    assert running.ended == 0
    running.let_go.set()
    wait_for("the probe that runs has ended", lambda: running.ended == 1)
    assert all(probe.ended == (not probe.runs) for probe in queued)


def test_run_of_a_worker_that_is_stopped_is_cancelled(world: World) -> None:
    stopped, other = world.add("pod", hangs=True), world.add("pod", hangs=True)
    wait_for("both probes run", lambda: stopped.runs == other.runs == [False])
    world.scheduler.stop(stopped)
    assert isinstance(stopped.contexts[0].err(), golang.Canceled)
    assert other.contexts[0].err() is None


def test_worker_that_does_not_go_on_ends(world: World) -> None:
    probe = Probe(world, "pod")
    probe.goes_on = False
    world.probes.append(probe)
    world.scheduler.add(probe)
    world.scheduler.tend()
    wait_for("the probe has ended", lambda: probe.ended == 1)
    world.scheduler.trigger(probe)
    world.scheduler.stop(probe)
    assert probe.runs == [False]


@pytest.mark.parametrize("err", [ValueError("broken"), RecursionError(), MemoryError(), golang.Canceled()])
def test_worker_that_raises_runs_again(world: World, err: Exception, log: io.StringIO) -> None:
    probe = Probe(world, "pod")
    probe.err = err
    world.probes.append(probe)
    world.scheduler.add(probe)
    world.scheduler.tend()
    wait_for(
        "the probe ran and waits until it is due again", lambda: probe.runs == [False] and world.clock.waiters() == 1
    )
    world.clock.step(10)
    wait_for("the probe ran twice", lambda: probe.runs == [False, False])
    assert "Probe worker failed" in log.getvalue()


def test_first_thread_that_cannot_be_started_is_tried_again_with_housekeeping(world: World, log: io.StringIO) -> None:
    with out_of_threads("prober-"):
        probe = world.add("pod")
    assert "Cannot start probing" in log.getvalue()
    assert "can't start new thread" in log.getvalue()
    world.scheduler.tend()
    wait_for("the probe ran", lambda: probe.runs == [False])


def test_thread_that_cannot_be_started_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    monkeypatch.setattr(scheduler, "_RETRY_PERIOD", 0.01)
    waiting = world.add("pod", due=5.0)
    wait_for("the timekeeper waits for the next due time", lambda: world.clock.waiters() == 1)
    with out_of_threads("prober-"):
        world.clock.step(5)
        wait_for("the lack of threads is logged", lambda: "Probes wait for a thread" in log.getvalue())
        assert waiting.runs == []
    wait_for("the waiting probe ran", lambda: waiting.runs == [False])


def test_threads_that_there_are_serve_all_when_no_other_can_be_started(world: World, log: io.StringIO) -> None:
    first = world.add("pod", hangs=True)
    wait_for("the first probe ran", lambda: first.runs == [False])
    with out_of_threads("prober-"):
        others = [world.add(f"pod-{number}") for number in range(20)]
        wait_for("the lack of threads is logged", lambda: "Probes wait for a thread" in log.getvalue())
        first.let_go.set()
        wait_for("all other probes ran", lambda: all(probe.runs for probe in others))


def test_worker_that_is_stopped_while_no_thread_can_be_started(world: World, log: io.StringIO) -> None:
    with out_of_threads("prober-"):
        probe = world.add("pod")
        world.scheduler.stop(probe)
    assert probe.ended == 1


def test_timekeeper_survives_a_fault(world: World, monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> None:
    monkeypatch.setattr(scheduler, "_RETRY_PERIOD", 0.01)
    dispatch, faults = Scheduler._dispatch, [MemoryError(), RecursionError()]

    def fail_at_first(self: Scheduler) -> float | None:
        if faults:
            raise faults.pop()
        return dispatch(self)

    monkeypatch.setattr(Scheduler, "_dispatch", fail_at_first)
    probe = world.add("pod")
    wait_for("the probe ran", lambda: probe.runs == [False])
    assert log.getvalue().count("Failed to schedule probes") == 2


def test_probes_that_wait_long_are_told_once(world: World, log: io.StringIO) -> None:
    for _ in range(MAX_PROBES_PER_POD + 4):
        world.add("pod", hangs=True)
    wait_for("as many probes run as a pod may have at a time", lambda: world.running == MAX_PROBES_PER_POD)
    for _ in range(5):
        world.clock.step(5)
        world.add("other", due=world.clock.monotonic())
    wait_for("the wait of probes is logged", lambda: "Probes wait for others to end" in log.getvalue())
    assert log.getvalue().count("Probes wait for others to end") == 1
    assert 'podUID="pod"' in log.getvalue()


def test_all_that_is_stopped_leaves_nothing(world: World) -> None:
    for number in range(500):
        probe = world.add(f"pod-{number}", due=1e9)
        world.scheduler.stop(probe)
    world.add("last", due=1e9)
    assert len(world.scheduler._waiting) <= 2 * len(world.scheduler._tasks) + scheduler._STALE_ENTRIES + 1
    assert world.scheduler._pods == {}
    assert len(world.scheduler._tasks) == 1
