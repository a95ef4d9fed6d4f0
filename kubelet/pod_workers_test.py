"""Test the pod workers.

Most tests run a worker's loop by hand, message by message, so that nothing depends on the scheduling of threads. The
tests at the end use real threads.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, TypeVar

import pytest
from framework.waiting import threads_named, wait_for

from kubelet import activity, pod_workers
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.allocation.testing import FakeAllocationManager
from kubelet.container.testing import FakeOneStatusCache
from kubelet.errors import NetworkNotReadyError
from kubelet.pod_workers import (
    SYNC_POD,
    TERMINATED_POD,
    TERMINATING_POD,
    KillPodOptions,
    PodStart,
    PodStatusFunc,
    PodSyncStatus,
    PodWorkerSync,
    UpdatePodOptions,
)
from kubelet.testing import FakePodSyncer, SyncRecord
from kubelet.util.queue.testing import FakeWorkQueue
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.golang import testing as golangtesting

UID = types.UID("1")

P = ParamSpec("P")
T = TypeVar("T")

CREATE, UPDATE = kubetypes.SYNC_POD_CREATE, kubetypes.SYNC_POD_UPDATE
SYNC, KILL = kubetypes.SYNC_POD_SYNC, kubetypes.SYNC_POD_KILL


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def new_named_pod(uid: str, namespace: str, name: str, is_static: bool = False) -> v1.Pod:
    annotations = {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: kubetypes.FILE_SOURCE} if is_static else {}
    return v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID(uid), namespace=namespace, name=name, annotations=annotations),
        spec=v1.PodSpec(termination_grace_period_seconds=30),
    )


def new_static_pod(uid: str, name: str) -> v1.Pod:
    return new_named_pod(uid, "", name, is_static=True)


def running_pod(uid: str, name: str, namespace: str) -> kubecontainer.Pod:
    return kubecontainer.Pod(id=types.UID(uid), name=name, namespace=namespace)


def kill_options(grace_period: int, evict: bool = False) -> KillPodOptions:
    return KillPodOptions(evict=evict, pod_termination_grace_period_seconds_override=grace_period)


@dataclass(eq=False)
class Input:
    """Hold the channel from which a worker reads, and the incarnation of the pod that it serves."""

    uid: types.UID
    updates: golang.Channel[None]
    life: PodSyncStatus


class Harness:
    """Run pod workers without threads: `step` and `drain` do their work, one message at a time.

    Each update, and each message that a worker takes, advances the clock by a second.
    """

    def __init__(self) -> None:
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.clock = clocktesting.FakeClock(at(1))
        self.syncer = FakePodSyncer()
        self.queue = FakeWorkQueue()
        self.cache = FakeOneStatusCache()
        self.recorder = FakeRecorder(100)
        self.workers = pod_workers.PodWorkers(
            self.syncer, self.recorder, self.queue, 1.0, 0.001, self.cache, FakeAllocationManager(), self.clock
        )
        self.inputs: list[Input] = []
        self.at_work: set[Input] = set()
        self.workers.worker_channel_fn = self._intercept

    def _intercept(self, uid: types.UID, updates: golang.Channel[None]) -> golang.Channel[None]:
        self.inputs.append(Input(types.UID(uid), updates, self.status(uid)))
        return golang.Channel()

    def update(self, options: UpdatePodOptions, *before_workers: Callable[[], None]) -> None:
        self.workers.update_pod(self.ctx, options)
        self.clock.step(1)
        for fn in before_workers:
            fn()

    def sync(self, pod: v1.Pod, update_type: kubetypes.SyncPodType = UPDATE) -> None:
        """Send an update, and let all workers handle the consequences."""
        self.update(UpdatePodOptions(update_type=update_type, pod=pod))
        self.drain()

    def kill(self, pod: v1.Pod) -> None:
        self.sync(pod, KILL)

    def step(self, worker: Input) -> bool:
        """Let a worker handle one message; return False if there is none, or if the worker is inside a step."""
        if worker in self.at_work:
            return False
        is_open = self._is_open(worker)
        _, ok, ready = worker.updates.try_recv()
        if not ready or not ok:
            return False
        self.clock.step(1)
        once: golang.Channel[None] = golang.Channel(1)
        once.send(None)
        once.close()
        self.at_work.add(worker)
        self.workers.pod_worker_loop(self.ctx, worker.uid, once, worker.life)
        self.at_work.remove(worker)
        if is_open and not self._is_open(worker):
            # The worker has finished with its pod, and reads no further messages.
            self.inputs.remove(worker)
        return True

    def _is_open(self, worker: Input) -> bool:
        return self.workers.pod_updates.get(worker.uid) is worker.updates

    def drain(self, *held: str) -> None:
        """Let all workers, except those of the held UIDs, do all their work."""
        while any(self.step(worker) for worker in list(self.inputs) if worker.uid not in held):
            pass

    def status(self, uid: str) -> PodSyncStatus:
        return self.workers.pod_sync_statuses[types.UID(uid)]

    def close(self) -> None:
        self.cancel()


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.close()


# ---- update_pod ----


@dataclass
class UpdateCase:
    name: str
    update: UpdatePodOptions
    expect: PodSyncStatus | None = None
    expect_before_worker: PodSyncStatus | None = None
    expect_known_terminated: bool = False
    # These updates come first; the workers see those in `held` only after this case's update.
    before: tuple[UpdatePodOptions, ...] = ()
    held: tuple[UpdatePodOptions, ...] = ()
    # If this flag is set, the runtime knows the pod, and none of its containers runs.
    has_runtime_status: bool = False


def _running() -> v1.Pod:
    return new_named_pod("1", "ns", "running-pod")


def _done() -> v1.Pod:
    pod = new_named_pod("1", "ns", "done-pod")
    pod.status.phase = v1.POD_SUCCEEDED
    return pod


def _deleting() -> v1.Pod:
    pod = _running()
    pod.metadata.deletion_timestamp = at(1)
    pod.metadata.deletion_grace_period_seconds = 15
    return pod


def _labeled() -> v1.Pod:
    pod = _running()
    pod.metadata.labels["updated"] = "value"
    return pod


CREATED = UpdatePodOptions(update_type=CREATE, pod=_running())
ORPHAN = running_pod("1", "orphaned-pod", "ns")

UPDATE_CASES = [
    UpdateCase(
        "a new pod is recorded and started",
        CREATED,
        expect=PodSyncStatus(
            fullname="running-pod_ns",
            synced_at=at(1),
            started_at=at(3),
            active_update=UpdatePodOptions(pod=_running()),
        ),
    ),
    UpdateCase(
        "a create for a pod that is terminating asks for a restart",
        UpdatePodOptions(update_type=CREATE, pod=_labeled()),
        before=(CREATED,),
        held=(UpdatePodOptions(update_type=KILL, pod=_running()),),
        expect=PodSyncStatus(
            fullname="running-pod_ns",
            synced_at=at(1),
            started_at=at(3),
            terminating_at=at(3),
            terminated_at=at(6),
            grace_period=30,
            started_terminating=True,
            restart_requested=True,
            finished=True,
            active_update=UpdatePodOptions(pod=_running(), kill_pod_options=kill_options(30)),
        ),
        expect_known_terminated=True,
    ),
    UpdateCase(
        "a running pod beside a pod is ignored",
        UpdatePodOptions(update_type=CREATE, pod=_running(), running_pod=ORPHAN),
        expect=PodSyncStatus(
            fullname="running-pod_ns",
            synced_at=at(1),
            started_at=at(3),
            active_update=UpdatePodOptions(pod=_running()),
        ),
    ),
    UpdateCase(
        "a pod with a deletion timestamp is terminated",
        UpdatePodOptions(update_type=UPDATE, pod=_deleting()),
        before=(CREATED,),
        expect=PodSyncStatus(
            fullname="running-pod_ns",
            synced_at=at(1),
            started_at=at(3),
            terminating_at=at(3),
            terminated_at=at(5),
            grace_period=15,
            started_terminating=True,
            finished=True,
            deleted=True,
            active_update=UpdatePodOptions(pod=_deleting(), kill_pod_options=kill_options(15)),
        ),
        expect_known_terminated=True,
    ),
    UpdateCase(
        "an evicted pod is terminated",
        UpdatePodOptions(update_type=KILL, pod=_running(), kill_pod_options=KillPodOptions(evict=True)),
        before=(CREATED,),
        expect=PodSyncStatus(
            fullname="running-pod_ns",
            synced_at=at(1),
            started_at=at(3),
            terminating_at=at(3),
            terminated_at=at(5),
            grace_period=30,
            started_terminating=True,
            finished=True,
            evicted=True,
            active_update=UpdatePodOptions(pod=_running(), kill_pod_options=kill_options(30, evict=True)),
        ),
        expect_known_terminated=True,
    ),
    UpdateCase(
        "a terminal pod that we have not started is terminated unless the runtime has seen its end",
        UpdatePodOptions(update_type=CREATE, pod=_done()),
        expect=PodSyncStatus(
            fullname="done-pod_ns",
            synced_at=at(1),
            terminating_at=at(1),
            started_at=at(3),
            terminated_at=at(3),
            active_update=UpdatePodOptions(pod=_done(), kill_pod_options=kill_options(30)),
            grace_period=30,
            started_terminating=True,
            finished=True,
        ),
        expect_known_terminated=True,
    ),
    UpdateCase(
        "a terminal pod whose end the runtime has seen only needs cleaning up",
        UpdatePodOptions(update_type=CREATE, pod=_done()),
        has_runtime_status=True,
        expect_before_worker=PodSyncStatus(
            fullname="done-pod_ns",
            synced_at=at(1),
            terminating_at=at(1),
            terminated_at=at(1),
            pending_update=UpdatePodOptions(update_type=CREATE, pod=_done()),
            started_terminating=True,
            working=True,
        ),
        expect=PodSyncStatus(
            fullname="done-pod_ns",
            synced_at=at(1),
            terminating_at=at(1),
            terminated_at=at(1),
            started_at=at(3),
            started_terminating=True,
            finished=True,
            active_update=UpdatePodOptions(update_type=SYNC, pod=_done()),
        ),
        expect_known_terminated=True,
    ),
    UpdateCase(
        "an orphan in the runtime is terminated and then forgotten",
        UpdatePodOptions(update_type=KILL, running_pod=ORPHAN),
        expect_before_worker=PodSyncStatus(
            fullname="orphaned-pod_ns",
            synced_at=at(1),
            terminating_at=at(1),
            pending_update=UpdatePodOptions(update_type=KILL, running_pod=ORPHAN, kill_pod_options=kill_options(1)),
            grace_period=1,
            deleted=True,
            observed_runtime=True,
            working=True,
        ),
    ),
    UpdateCase(
        "an orphan in the runtime can only be killed",
        UpdatePodOptions(update_type=CREATE, running_pod=ORPHAN),
    ),
]


def _without_cancel_fn(status: PodSyncStatus | None) -> PodSyncStatus | None:
    return None if status is None else replace(status, cancel_fn=None)


@pytest.mark.parametrize("tc", UPDATE_CASES, ids=lambda tc: tc.name)
def test_update_pod(tc: UpdateCase, harness: Harness) -> None:
    for options in tc.before:
        harness.update(options)
        harness.drain()
    for options in tc.held:
        harness.update(options)
    if not tc.has_runtime_status:
        harness.cache.err = LookupError("no such pod")
    statuses = harness.workers.pod_sync_statuses

    def before_worker() -> None:
        if tc.expect_before_worker is not None:
            assert _without_cancel_fn(statuses.get(UID)) == tc.expect_before_worker
        harness.cache.err = None

    harness.update(tc.update, before_worker)
    harness.drain()
    assert harness.workers.is_pod_known_terminated(UID) is tc.expect_known_terminated
    assert _without_cancel_fn(statuses.get(UID)) == tc.expect
    assert tc.expect is None or statuses[UID].cancel_fn is not None


def test_update_pod_does_not_change_what_it_is_given(harness: Harness) -> None:
    kill = KillPodOptions(evict=True)
    options = UpdatePodOptions(update_type=KILL, pod=_running(), kill_pod_options=kill)
    harness.update(options)
    harness.drain()
    assert kill == KillPodOptions(evict=True)
    assert options == UpdatePodOptions(update_type=KILL, pod=_running(), kill_pod_options=kill)


def test_update_pod_does_not_forget_a_kill(harness: Harness) -> None:
    pod = new_named_pod("1", "ns", "pod")
    for update_type in (CREATE, KILL, UPDATE):
        harness.update(UpdatePodOptions(update_type=update_type, pod=pod))
    harness.drain()
    assert harness.syncer.processed["1"] == [
        SyncRecord("terminating", "pod", grace_period=30),
        SyncRecord("terminated", "pod"),
    ]


def test_the_oldest_unseen_start_time_is_kept(harness: Harness) -> None:
    pod = new_named_pod("1", "ns", "pod")
    harness.update(UpdatePodOptions(update_type=CREATE, pod=pod, start_time=at(10)))
    harness.update(UpdatePodOptions(update_type=UPDATE, pod=pod, start_time=at(20)))
    pending = harness.status("1").pending_update
    assert pending is not None
    assert pending.start_time == at(10)


def test_update_pod_for_runtime_pod(harness: Harness) -> None:
    harness.update(UpdatePodOptions(update_type=CREATE, running_pod=running_pod("1", "1", "test")))
    harness.drain()
    assert not harness.syncer.processed
    harness.update(UpdatePodOptions(update_type=KILL, running_pod=running_pod("1", "1", "test")))
    harness.drain()
    assert harness.syncer.processed == {"1": [SyncRecord("terminating runtime", "1")]}
    assert not harness.workers.pod_updates


def test_update_pod_for_runtime_pod_uses_the_spec_it_has(harness: Harness) -> None:
    harness.sync(_running(), CREATE)
    harness.update(UpdatePodOptions(update_type=KILL, running_pod=running_pod("1", "running-pod", "ns")))
    harness.drain()
    assert [r.step for r in harness.syncer.processed["1"]] == ["sync", "terminating", "terminated"]


def test_update_pod_for_terminated_runtime_pod(harness: Harness) -> None:
    harness.workers.pod_sync_statuses[UID] = PodSyncStatus(
        started_terminating=True, terminated_at=at(0), terminating_at=at(0), grace_period=1
    )
    harness.update(UpdatePodOptions(update_type=KILL, running_pod=running_pod("1", "1", "test")))
    harness.drain()
    assert not harness.syncer.processed


def test_terminal_pod_that_the_runtime_has_not_shown_yet_is_ended(harness: Harness) -> None:
    """Right after a start the inspection takes long, and the pod's containers may be running."""
    cache = kubecontainer.CacheImpl()
    cache.update_time(at(0), {UID})
    harness.workers._pod_cache = cache
    harness.update(UpdatePodOptions(update_type=CREATE, pod=_done()))
    assert harness.workers.could_have_running_containers(UID)
    cache.update_time(at(1), ())
    harness.drain()
    assert [record.step for record in harness.syncer.processed["1"]] == ["terminating", "terminated"]


def test_terminal_phase_transition(harness: Harness) -> None:
    pod = new_named_pod("1", "test1", "pod1")
    for _ in range(2):
        harness.sync(pod)
        assert not harness.status("1").is_terminated()
    harness.syncer.on_sync = lambda ctx, pod: True
    harness.sync(pod)
    assert harness.status("1").is_termination_requested()
    assert harness.status("1").is_terminated()
    assert [r.step for r in harness.syncer.processed["1"]] == [
        "sync", "sync", "sync", "terminating", "terminated",
    ]  # fmt: skip


# ---- Kills ----


def test_the_grace_period_only_shrinks(harness: Harness) -> None:
    pod = _running()
    harness.sync(pod, CREATE)
    harness.syncer.on_terminating = _fail
    for override in (20, 25, None, 5, 10, 0):
        kill = KillPodOptions(pod_termination_grace_period_seconds_override=override)
        harness.update(UpdatePodOptions(update_type=KILL, pod=pod, kill_pod_options=kill))
        harness.drain()
    graces = [r.grace_period for r in harness.syncer.processed["1"] if r.step == "terminating"]
    assert graces == [20, 20, 20, 5, 5, 1]


def _fail(*_: object) -> None:
    raise RuntimeError("injected")


def test_the_last_kills_status_function_is_used(harness: Harness) -> None:
    seen: list[PodStatusFunc | None] = []

    def collect(ctx: golang.Context, pod: v1.Pod, fn: PodStatusFunc | None) -> None:
        seen.append(fn)
        raise RuntimeError("injected")

    def first(status: v1.PodStatus) -> None: ...

    def second(status: v1.PodStatus) -> None: ...

    pod = _running()
    harness.sync(pod, CREATE)
    harness.syncer.on_terminating = collect
    for fn in (first, None, second):
        kill = KillPodOptions(pod_status_func=fn)
        harness.update(UpdatePodOptions(update_type=KILL, pod=pod, kill_pod_options=kill))
        harness.drain()
    assert seen == [first, first, second]


def _kill_with_channel(harness: Harness, pod: v1.Pod) -> golang.Channel[None]:
    completed: golang.Channel[None] = golang.Channel(1)
    kill = KillPodOptions(completed_ch=completed)
    harness.update(UpdatePodOptions(update_type=KILL, pod=pod, kill_pod_options=kill))
    return completed


def _is_closed(ch: golang.Channel[None]) -> bool:
    _, ok, ready = ch.try_recv()
    return ready and not ok


def test_a_kill_is_completed_when_no_container_runs_any_more(harness: Harness) -> None:
    pod = _running()
    harness.sync(pod, CREATE)
    harness.syncer.on_terminating = _fail
    channels = [_kill_with_channel(harness, pod) for _ in range(2)]
    harness.drain()
    assert not any(_is_closed(ch) for ch in channels)
    harness.syncer.on_terminating = lambda ctx, pod, fn: None
    harness.syncer.on_terminated = _fail
    harness.sync(pod)
    assert all(_is_closed(ch) for ch in channels)
    assert not harness.status("1").finished
    assert _is_closed(_kill_with_channel(harness, pod)), "nothing is left to kill"


def test_progress_changes_while_nobody_looks(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, locked = pod_workers.StepProgress.ended, []

    def note(progress: pod_workers.StepProgress, now: datetime, err: Exception | None) -> None:
        locked.append(harness.workers.pod_lock.locked())
        ended(progress, now, err)

    monkeypatch.setattr(pod_workers.StepProgress, "ended", note)
    harness.sync(_running(), CREATE)
    assert locked == [True]


def test_progress_counts_failures_in_a_row(harness: Harness) -> None:
    pod = _running()
    harness.sync(pod, CREATE)
    harness.syncer.on_terminating = _fail
    _kill_with_channel(harness, pod)
    harness.drain()

    progress = harness.status("1").progress
    assert progress.err and progress.failures > 0
    assert progress.began_at is None and progress.ended_at is not None and progress.next_at is not None
    failures = progress.failures
    harness.sync(pod)
    assert harness.status("1").progress.failures == failures + 1
    harness.syncer.on_terminating = lambda ctx, pod, fn: None
    harness.sync(pod)
    assert (harness.status("1").progress.err, harness.status("1").progress.failures) == ("", 0)


def test_of_a_step_that_failed_nothing_is_kept_but_the_text(harness: Harness) -> None:
    held = golangtesting.Held()

    def fail(*_: object) -> bool:
        _large = held.new()
        raise ValueError("bad")

    harness.syncer.on_sync = fail
    assert golangtesting.frames_kept_after(lambda: harness.sync(_running(), CREATE)) == []
    assert held.freed() == [True]
    assert harness.status("1").progress.err == "bad"


def test_step_that_is_cancelled_has_not_failed() -> None:
    progress = pod_workers.StepProgress(failures=1)
    progress.ended(at(1), golang.Canceled())
    assert (progress.steps, progress.failures, progress.err) == (1, 1, "")


# ---- Snapshots ----


def test_snapshot_of_a_pod_that_is_synced_and_one_that_ends(harness: Harness) -> None:
    synced, ends = _running(), new_named_pod("2", "ns", "other")
    harness.sync(synced, CREATE)
    harness.sync(ends, CREATE)
    harness.syncer.on_terminating = _fail
    harness.kill(ends)

    found = harness.workers.snapshot()

    assert list(found) == ["1", "2"]
    one, two = found[UID], found[types.UID("2")]
    assert (one.pod, one.phase, one.has_worker, one.steps > 0, one.err) == (synced, SYNC_POD, True, True, "")
    assert (two.name, two.phase, two.terminating_at is not None) == ("other", TERMINATING_POD, True)
    assert two.failures > 0 and two.err == "injected"


def test_snapshot_of_a_finished_pod(harness: Harness) -> None:
    pod = _running()
    harness.sync(pod, CREATE)
    harness.kill(pod)
    found = harness.workers.snapshot()[UID]
    assert (found.phase, found.finished, found.has_worker) == (TERMINATED_POD, True, False)


def test_snapshot_tells_what_the_worker_is_at(harness: Harness) -> None:
    seen = []

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        with activity.doing(ctx, Activity.WAITS_FOR_VOLUMES):
            seen.append(harness.workers.snapshot()[UID].activity)
            raise ValueError("no volumes")

    harness.syncer.on_sync = sync
    harness.sync(_running(), CREATE)

    assert seen[0] is Activity.WAITS_FOR_VOLUMES
    assert harness.workers.snapshot()[UID].failed_at is Activity.WAITS_FOR_VOLUMES
    harness.syncer.on_sync = lambda ctx, pod: False
    harness.sync(_running())
    assert harness.workers.snapshot()[UID].failed_at is None


def test_snapshot_tells_which_actions_failed(harness: Harness) -> None:
    result = kubecontainer.SyncResult(kubecontainer.CREATE_POD_SANDBOX, "p", kubecontainer.ErrCreatePodSandbox())

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        kubecontainer.PodSyncResult([result]).raise_if_failed()
        return False

    harness.syncer.on_sync = sync
    harness.sync(_running(), CREATE)
    assert harness.workers.snapshot()[UID].failed_actions == {kubecontainer.CREATE_POD_SANDBOX}


class RecordedPosition(activity.Position):
    """Record all activities of a worker in order."""

    def __init__(self) -> None:
        self.seen: list[Activity | None] = []
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "activity" and (value is None or isinstance(value, Activity)):
            self.seen.append(value)


def test_worker_tells_what_it_waits_for(harness: Harness) -> None:
    harness.update(UpdatePodOptions(update_type=CREATE, pod=_running()))
    harness.status("1").progress.position = position = RecordedPosition()
    harness.drain()
    between = Activity.BETWEEN_STEPS
    update, status = Activity.WAITS_FOR_UPDATE, Activity.WAITS_FOR_STATUS
    assert position.seen == [None, between, update, between, status, between, update, between, None]


def test_a_kill_of_a_finished_pod_is_completed_at_once(harness: Harness) -> None:
    pod = _running()
    harness.sync(pod, CREATE)
    harness.kill(pod)
    assert harness.status("1").finished
    assert _is_closed(_kill_with_channel(harness, pod))


def test_a_kill_of_a_pod_that_waits_to_start_is_completed(harness: Harness) -> None:
    harness.sync(new_static_pod("1", "pod"))
    waiting = new_static_pod("2", "pod")
    harness.sync(waiting)
    completed = _kill_with_channel(harness, waiting)
    harness.drain()
    assert _is_closed(completed)
    assert not harness.workers.could_have_running_containers(types.UID("2"))


def test_a_kill_is_completed_if_the_pod_is_forgotten_first(harness: Harness) -> None:
    pod = _running()
    harness.update(UpdatePodOptions(update_type=CREATE, pod=pod))
    completed = _kill_with_channel(harness, pod)
    harness.workers.sync_known_pods([])
    assert not harness.workers.pod_sync_statuses
    assert _is_closed(completed)
    harness.drain()
    assert not harness.syncer.processed


def test_a_step_that_is_over_leaves_nothing_with_the_kubelets_context(harness: Harness) -> None:
    contexts: list[golang.Context] = []

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        contexts.append(ctx)
        return False

    harness.syncer.on_sync = sync
    harness.sync(_running(), CREATE)
    assert [type(ctx.err()) for ctx in contexts] == [golang.Canceled]


def test_a_worker_works_for_one_life_of_a_pod_only(harness: Harness) -> None:
    created = UpdatePodOptions(update_type=CREATE, pod=_running())
    harness.update(created)
    harness.workers.sync_known_pods([])
    harness.update(created)
    old, new = harness.inputs
    assert harness.step(old), "the old worker still has a message"
    assert not harness.syncer.processed
    assert harness.step(new)
    assert harness.syncer.processed["1"] == [SyncRecord("sync", "running-pod", CREATE)]


def test_a_kill_cancels_the_sync_that_runs(harness: Harness) -> None:
    pod = _running()

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        assert ctx.err() is None
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=UPDATE, pod=pod))
        assert ctx.err() is None, "an update is no reason to stop"
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=KILL, pod=pod))
        raise ctx.err() or AssertionError("not cancelled")

    harness.syncer.on_sync = sync
    harness.sync(pod, CREATE)
    assert [r.step for r in harness.syncer.processed["1"]] == ["sync", "terminating", "terminated"]


def test_the_sync_that_runs_for_an_orphan_is_cancelled(harness: Harness) -> None:
    """The sync may wait for a hook forever; no update ends a pod that was removed before all sources were ready."""
    errs: list[Exception | None] = []

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        for wanted in ([pod], []):
            harness.workers.sync_known_pods(wanted)
            errs.append(ctx.err())
        raise ctx.err() or AssertionError("not cancelled")

    harness.syncer.on_sync = sync
    harness.sync(_running(), CREATE)
    assert [type(err) for err in errs] == [type(None), golang.Canceled]
    assert [r.step for r in harness.syncer.processed["1"]] == ["sync", "terminating", "terminated"]


def test_a_shorter_grace_period_cancels_the_termination_that_runs(harness: Harness) -> None:
    errs: list[Exception | None] = []
    pod = _running()
    harness.sync(pod, CREATE)

    def terminate(ctx: golang.Context, pod: v1.Pod, fn: PodStatusFunc | None) -> None:
        if errs:
            return
        for grace in (60, 30, 10):
            options = UpdatePodOptions(update_type=KILL, pod=pod, kill_pod_options=kill_options(grace))
            harness.workers.update_pod(harness.ctx, options)
            errs.append(ctx.err())
        raise ctx.err() or AssertionError("not cancelled")

    harness.syncer.on_terminating = terminate
    harness.kill(pod)
    assert [type(err) for err in errs] == [type(None), type(None), golang.Canceled]
    assert [r.grace_period for r in harness.syncer.processed["1"]] == [None, 30, 10, None]


# ---- The status that a step gets ----


def test_each_step_waits_for_a_status_newer_than_the_last_one(harness: Harness) -> None:
    updates: golang.Channel[None] = golang.Channel(4)
    clock, syncer = harness.clock, harness.syncer
    pod = _running()
    harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=pod))

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        clock.step(10)
        if len(syncer.processed["1"]) == 1:
            raise RuntimeError("injected")
        return True

    syncer.on_sync = sync
    seen_at_post_sync: list[datetime] = []
    syncer.post_sync = lambda: seen_at_post_sync.append(clock.now())
    for _ in range(4):
        updates.send(None)
    pending = harness.status("1").pending_update
    updates.close()

    def requeue(status: PodSyncStatus) -> None:
        status.pending_update = pending

    original = harness.queue.enqueue

    def enqueue(item: types.UID, delay: float) -> None:
        original(item, delay)
        if len(harness.cache.min_times) == 1:
            requeue(harness.status("1"))

    harness.queue.enqueue = enqueue  # type: ignore[method-assign]
    harness.workers.pod_worker_loop(harness.ctx, UID, updates, harness.status("1"))
    assert harness.cache.min_times == [None, at(11), at(21), at(21)]
    assert seen_at_post_sync == [at(21)], "only a successful sync has a post_sync"
    assert harness.status("1").finished


def test_the_clock_may_be_set_back(harness: Harness) -> None:
    pod = _running()
    updates: golang.Channel[None] = golang.Channel(2)

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        if len(harness.syncer.processed["1"]) == 1:
            harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=UPDATE, pod=pod))
        return False

    def enqueue(item: types.UID, delay: float) -> None:
        if len(harness.cache.min_times) == 1:
            clock.set_time(clock.now() - timedelta(hours=1))
            clock.step(7)

    clock = harness.clock
    clock.set_time(at(10_000))
    harness.syncer.on_sync = sync
    harness.queue.enqueue = enqueue  # type: ignore[method-assign]
    harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=pod))
    for _ in range(2):
        updates.send(None)
    updates.close()
    harness.workers.pod_worker_loop(harness.ctx, UID, updates, harness.status("1"))
    assert harness.cache.min_times == [None, at(10_000)]


def test_without_a_status_the_step_is_put_off(harness: Harness) -> None:
    harness.cache.err = RuntimeError("inspection failed")
    harness.sync(_running(), CREATE)
    assert not harness.syncer.processed
    assert harness.recorder.drain() == ["Warning FailedSync error determining status: inspection failed"]
    assert [item for item, _ in harness.queue.items] == ["1"]
    harness.cache.err = None
    harness.sync(_running())
    assert [r.step for r in harness.syncer.processed["1"]] == ["sync"]


# ---- Backoff ----

NOW = at(1)


def _backoff_error(seconds: float) -> kubecontainer.BackoffError:
    return kubecontainer.BackoffError(RuntimeError("backoff error"), NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("phase_transition", "sync_err", "expected_min", "jitter_factor"),
    [
        pytest.param(True, None, 0.0, 0.0, id="a new phase begins at once"),
        pytest.param(False, None, 20.0, 0.5, id="after success the resync interval"),
        pytest.param(False, RuntimeError("generic error"), 10.0, 0.5, id="after an error the back-off"),
        pytest.param(False, _backoff_error(5), 5.0, 0.5, id="a BackoffError says when"),
        pytest.param(
            False,
            ExceptionGroup("", [RuntimeError("some other error"), _backoff_error(7)]),
            7.0,
            0.5,
            id="also one among others",
        ),
        pytest.param(False, ExceptionGroup("", [_backoff_error(10), _backoff_error(3)]), 3.0, 0.5, id="the earliest"),
        pytest.param(False, _backoff_error(-5), 0.0, 0.5, id="a back-off that is over"),
        pytest.param(False, _backoff_error(40), 20.0, 0.5, id="never longer than the resync interval"),
        pytest.param(False, NetworkNotReadyError("no CNI"), 1.0, 0.5, id="network not ready"),
        pytest.param(
            False,
            ExceptionGroup("", [RuntimeError("other"), NetworkNotReadyError("no CNI"), _backoff_error(3)]),
            1.0,
            0.5,
            id="network not ready among others",
        ),
    ],
)
def test_complete_work_enqueue(
    phase_transition: bool,
    sync_err: Exception | None,
    expected_min: float,
    jitter_factor: float,
    harness: Harness,
) -> None:
    workers = harness.workers
    workers.resync_interval, workers.back_off_period = 20.0, 10.0
    workers.pod_sync_statuses[types.UID("12345")] = PodSyncStatus()
    workers.complete_work(types.UID("12345"), phase_transition, sync_err)
    [(uid, delay)] = harness.queue.items
    assert uid == "12345"
    assert expected_min <= delay <= expected_min * (1 + jitter_factor)


def test_complete_work_pending_update(harness: Harness) -> None:
    workers = harness.workers
    status = workers.pod_sync_statuses[UID] = PodSyncStatus(working=True)
    workers.complete_work(UID, False, None)
    assert not status.working

    workers.pod_updates[UID] = golang.Channel(1)
    status.working, status.pending_update = True, UpdatePodOptions(pod=_running())
    workers.complete_work(UID, False, None)
    assert len(workers.pod_updates[UID]) == 1
    assert status.working


# ---- Static pods of one name ----


class StaticPods:
    """Provide static pods of one name, only one of which may run at a time, and a regular pod of that name."""

    _NAME = "pod1_test1"

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.normal = new_named_pod("1-normal", "test1", "pod1")

    def pod(self, uid: str) -> v1.Pod:
        return new_named_pod(uid, "test1", "pod1", is_static=True)

    def sync(self, *uids: str) -> None:
        for uid in uids:
            self.harness.sync(self.pod(uid))

    def kill(self, *uids: str) -> None:
        for uid in uids:
            self.harness.kill(self.pod(uid))

    def update(self, uid: str, update_type: kubetypes.SyncPodType) -> None:
        """Send an update, but do not let the workers handle it."""
        self.harness.update(UpdatePodOptions(update_type=update_type, pod=self.pod(uid)))

    def sync_known(self, *pods: v1.Pod) -> dict[types.UID, PodWorkerSync]:
        return self.harness.workers.sync_known_pods(pods)

    def is_terminated(self, uid: str) -> bool:
        return self.harness.status(uid).is_terminated()

    def has_run(self, uid: str) -> bool:
        return self.harness.syncer.processed[uid] == [SyncRecord("sync", "pod1", UPDATE)]

    @property
    def started(self) -> str | None:
        """Return the UID of the static pod that runs."""
        return self.harness.workers.started_static_pods_by_fullname.get(self._NAME)

    @property
    def waiting(self) -> list[types.UID]:
        """Return the UIDs of the static pods that wait to start, in order."""
        return self.harness.workers.waiting_to_start_static_pods_by_fullname.get(self._NAME, [])


@pytest.fixture
def static_pods(harness: Harness) -> StaticPods:
    return StaticPods(harness)


def test_static_pod_runs_beside_another_pod_of_its_name(harness: Harness, static_pods: StaticPods) -> None:
    harness.sync(static_pods.normal)
    static_pods.sync("2-static")
    assert not static_pods.is_terminated("1-normal")
    assert static_pods.has_run("2-static")
    assert static_pods.started == "2-static"


def test_static_pod_waits_while_another_of_its_name_runs(harness: Harness, static_pods: StaticPods) -> None:
    static_pods.sync("2-static", "3-static", "4-static")
    assert set(harness.syncer.processed) == {"2-static"}
    assert static_pods.started == "2-static"
    assert static_pods.waiting == ["3-static", "4-static"]
    assert set(harness.queue.get_work()) == {"2-static", "3-static", "4-static"}
    static_pods.sync("3-static")
    assert static_pods.waiting == ["3-static", "4-static"]
    assert harness.queue.get_work() == ["3-static"], "the pod is queued for a retry"


def test_static_pod_that_is_killed_before_its_turn_is_finished_without_having_run(
    harness: Harness, static_pods: StaticPods
) -> None:
    static_pods.sync("2-static", "3-static", "4-static")
    harness.queue.get_work()
    static_pods.kill("3-static")
    assert static_pods.is_terminated("3-static") and not static_pods.has_run("3-static")
    assert harness.queue.get_work() == []
    assert static_pods.started == "2-static"
    assert static_pods.waiting == ["3-static", "4-static"]


def test_end_of_a_static_pod_wakes_the_next_one_that_can_still_start(harness: Harness, static_pods: StaticPods) -> None:
    static_pods.sync("2-static", "3-static", "4-static")
    static_pods.kill("3-static", "2-static")
    assert static_pods.is_terminated("2-static")
    assert static_pods.started is None
    assert harness.queue.get_work()[-1] == "4-static"
    static_pods.sync("4-static")
    assert not static_pods.is_terminated("4-static")
    assert static_pods.started == "4-static"
    assert static_pods.waiting == []


def test_static_pod_that_has_not_run_is_forgotten_once_it_is_not_wanted(
    harness: Harness, static_pods: StaticPods
) -> None:
    harness.sync(static_pods.normal)
    static_pods.sync("2-static", "3-static", "4-static")
    static_pods.kill("3-static", "2-static")
    static_pods.sync("4-static")
    wanted = [static_pods.normal, static_pods.pod("2-static"), static_pods.pod("4-static")]
    assert static_pods.sync_known(*wanted, static_pods.pod("3-static")) == {
        "1-normal": PodWorkerSync(SYNC_POD, has_config=True),
        "2-static": PodWorkerSync(TERMINATED_POD, has_config=True, static=True),
        "3-static": PodWorkerSync(TERMINATED_POD),
        "4-static": PodWorkerSync(SYNC_POD, has_config=True, static=True),
    }
    assert harness.status("3-static").finished
    assert set(static_pods.sync_known(*wanted)) == {"1-normal", "2-static", "4-static"}
    assert "3-static" not in harness.workers.pod_sync_statuses


def test_static_pod_comes_before_one_that_was_killed_and_whose_worker_has_not_seen_it(
    harness: Harness, static_pods: StaticPods
) -> None:
    static_pods.sync("4-static", "5-static")
    static_pods.update("5-static", KILL)
    static_pods.update("6-static", UPDATE)
    harness.drain("5-static")
    assert harness.status("5-static").is_termination_requested()
    assert not static_pods.is_terminated("5-static")
    assert static_pods.waiting == ["5-static", "6-static"]
    static_pods.update("4-static", KILL)
    harness.drain("5-static")
    static_pods.update("6-static", UPDATE)
    harness.drain("5-static")
    assert not static_pods.is_terminated("5-static")
    assert static_pods.started == "6-static" and static_pods.has_run("6-static")
    assert static_pods.waiting == []
    harness.drain()
    assert static_pods.is_terminated("5-static")


def test_static_pods_start_in_the_order_in_which_they_came(harness: Harness, static_pods: StaticPods) -> None:
    """The order in which the workers ask does not matter."""
    static_pods.sync("6-static", "7-static", "8-static", "9-static")
    static_pods.kill("6-static")
    harness.sync(static_pods.pod("6-static"), CREATE)
    static_pods.sync("8-static")
    assert harness.status("6-static").restart_requested
    assert static_pods.started is None
    assert static_pods.waiting == ["7-static", "8-static", "9-static"]
    assert not any(static_pods.has_run(uid) for uid in static_pods.waiting)
    static_pods.kill("7-static")
    static_pods.sync("8-static")
    assert static_pods.has_run("8-static")


def test_static_pod_that_is_forgotten_waits_no_more(harness: Harness, static_pods: StaticPods) -> None:
    harness.sync(static_pods.normal)
    static_pods.sync("8-static", "9-static")
    assert static_pods.waiting == ["9-static"]
    assert static_pods.sync_known(static_pods.pod("8-static")) == {
        "1-normal": PodWorkerSync(TERMINATING_POD, orphan=True, has_config=True),
        "8-static": PodWorkerSync(SYNC_POD, has_config=True, static=True),
    }
    assert static_pods.waiting == []


def test_static_pod_that_runs_since_before_a_restart_is_ended_in_order(harness: Harness) -> None:
    """A file that is replaced during the kubelet's start makes a pod terminate that this process never started."""
    workers, processed = harness.workers, harness.syncer.processed
    workers.mark_pods_synced()
    running = kubecontainer.Status(state=kubecontainer.CONTAINER_STATE_RUNNING)
    harness.cache.status = kubecontainer.PodStatus(id=UID, container_statuses=[running])

    def end(ctx: golang.Context, pod: v1.Pod, fn: PodStatusFunc | None) -> None:
        assert workers.could_have_running_containers(UID), "the pod's volumes must stay"
        harness.cache.status = kubecontainer.PodStatus(id=UID)

    harness.syncer.on_terminating = end
    before, after = new_static_pod("1", "p"), new_static_pod("2", "p")
    for update_type, pod in ((CREATE, before), (KILL, before), (CREATE, after)):
        harness.update(UpdatePodOptions(update_type=update_type, pod=pod))
    harness.drain("1")
    assert processed["2"] == [], "the pod must not run beside the other one"
    harness.drain()
    assert [record.step for record in processed["1"]] == ["terminating", "terminated"]
    assert "2" in harness.queue.get_work()
    harness.sync(after, SYNC)
    assert [record.step for record in processed["2"]] == ["sync"]


@pytest.mark.parametrize("is_static", [False, True])
def test_orphan_that_runs_since_before_a_restart_is_ended_in_order(harness: Harness, is_static: bool) -> None:
    """Housekeeping comes before the pod's worker has taken the update."""
    running = kubecontainer.Status(state=kubecontainer.CONTAINER_STATE_RUNNING)
    harness.cache.status = kubecontainer.PodStatus(id=UID, container_statuses=[running])
    pod = new_named_pod("1", "ns", "p", is_static)
    pod.spec.termination_grace_period_seconds = 45
    harness.update(UpdatePodOptions(update_type=CREATE, pod=pod))
    known = harness.workers.sync_known_pods([])
    assert known[UID].state is TERMINATING_POD
    assert harness.status("1").grace_period == 45, "the retry has the same grace period"
    harness.drain()
    steps = harness.syncer.processed["1"]
    assert [(record.step, record.grace_period) for record in steps] == [("terminating", None), ("terminated", None)]


def test_pods_that_a_worker_has_begun_with(harness: Harness) -> None:
    """Pods without a thread, and pods that no source contains any more, are forgotten although they may run."""
    pod = new_named_pod("1", "ns", "p", False)
    harness.update(UpdatePodOptions(update_type=CREATE, pod=pod))
    assert harness.workers.begun_pods() == set()
    harness.drain()
    assert harness.workers.begun_pods() == {"1"}
    harness.kill(pod)
    harness.workers.sync_known_pods([])
    assert harness.workers.begun_pods() == set()


def test_static_pod_that_cannot_be_looked_at_may_run_since_before_a_restart(harness: Harness) -> None:
    harness.cache.err = LookupError("not inspected yet")
    pod = new_static_pod("1", "p")
    for update_type in (CREATE, KILL):
        harness.update(UpdatePodOptions(update_type=update_type, pod=pod))
    harness.drain()
    assert harness.workers.could_have_running_containers(UID)
    harness.cache.err = None
    harness.kill(pod)
    assert harness.status("1").finished


def test_is_pod_for_mirror_pod_terminating_by_full_name(harness: Harness) -> None:
    pod = new_named_pod("1", "ns", "pod", is_static=True)
    terminating = harness.workers.is_pod_for_mirror_pod_terminating_by_full_name
    assert not terminating("pod_ns")
    harness.sync(pod)
    assert not terminating("pod_ns")
    harness.syncer.on_terminating = _fail
    harness.kill(pod)
    assert terminating("pod_ns")
    harness.syncer.on_terminating = lambda ctx, pod, fn: None
    harness.sync(pod)
    assert not terminating("pod_ns")


@dataclass
class StartCase:
    name: str
    pod: v1.Pod
    fullnames: dict[str, str]
    expected: PodStart
    started: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, list[str]] = field(default_factory=dict)
    terminating: tuple[str, ...] = ()
    terminated: tuple[str, ...] = ()
    expected_started: dict[str, str] = field(default_factory=dict)
    expected_waiting: dict[str, list[str]] = field(default_factory=dict)


START_CASES = [
    StartCase(
        "non-static pod",
        new_named_pod("0", "ns", "test"),
        {"0": "test_", "1": "test_"},
        expected=PodStart.NOW,
    ),
    StartCase(
        "non-static pod beside a started static pod of its name",
        new_named_pod("0", "ns", "test"),
        {"0": "test_", "1": "test_"},
        started={"test_": "1"},
        expected_started={"test_": "1"},
        expected=PodStart.NOW,
    ),
    StartCase(
        "static pod, another name has started",
        new_static_pod("0", "foo"),
        {"0": "foo_", "1": "bar_"},
        started={"bar_": "1"},
        expected_started={"foo_": "0", "bar_": "1"},
        expected=PodStart.NOW,
    ),
    StartCase(
        "static pod, its name has started",
        new_static_pod("0", "foo"),
        {"0": "foo_", "1": "foo_"},
        started={"foo_": "1"},
        expected_started={"foo_": "1"},
        expected=PodStart.LATER,
    ),
    StartCase(
        "static pod that has started itself",
        new_static_pod("0", "foo"),
        {"0": "foo_"},
        started={"foo_": "0"},
        expected_started={"foo_": "0"},
        expected=PodStart.NOW,
    ),
    StartCase(
        "first in line",
        new_static_pod("0", "foo"),
        {"0": "foo_"},
        waiting={"foo_": ["0"]},
        expected_started={"foo_": "0"},
        expected=PodStart.NOW,
    ),
    StartCase(
        "second in line",
        new_static_pod("0", "foo"),
        {"0": "foo_", "1": "foo_"},
        waiting={"foo_": ["1", "0"]},
        expected_waiting={"foo_": ["1", "0"]},
        expected=PodStart.LATER,
    ),
    StartCase(
        "those before it are not known any more",
        new_static_pod("0", "foo"),
        {"0": "foo_", "1": "foo_"},
        waiting={"foo_": ["2", "2", "3", "0", "1"]},
        expected_started={"foo_": "0"},
        expected_waiting={"foo_": ["1"]},
        expected=PodStart.NOW,
    ),
    StartCase(
        "those before it are on their way out",
        new_static_pod("0", "foo"),
        {"0": "foo_", "1": "foo_", "2": "foo_", "3": "foo_"},
        terminating=("2",),
        terminated=("3",),
        waiting={"foo_": ["2", "3", "0", "1"]},
        expected_started={"foo_": "0"},
        expected_waiting={"foo_": ["1"]},
        expected=PodStart.NOW,
    ),
    StartCase(
        "not known",
        new_static_pod("0", "foo"),
        {"1": "foo_"},
        waiting={"foo_": ["1"]},
        expected_waiting={"foo_": ["1"]},
        expected=PodStart.NEVER,
    ),
    StartCase(
        "on its own way out",
        new_static_pod("0", "foo"),
        {"0": "foo_"},
        terminating=("0",),
        waiting={"foo_": ["2", "3", "0", "1"]},
        expected_waiting={"foo_": ["2", "3", "0", "1"]},
        expected=PodStart.NEVER,
    ),
]


@pytest.mark.parametrize("tc", START_CASES, ids=lambda tc: tc.name)
def test_allow_pod_start(tc: StartCase, harness: Harness) -> None:
    workers = harness.workers
    for uid, fullname in tc.fullnames.items():
        status = workers.pod_sync_statuses[types.UID(uid)] = PodSyncStatus(fullname=fullname)
        status.terminating_at = NOW if uid in tc.terminating else None
        status.terminated_at = NOW if uid in tc.terminated else None
    workers.started_static_pods_by_fullname = {fullname: types.UID(uid) for fullname, uid in tc.started.items()}
    workers.waiting_to_start_static_pods_by_fullname = {
        fullname: [types.UID(uid) for uid in uids] for fullname, uids in tc.waiting.items()
    }
    assert workers.allow_pod_start_locked(tc.pod) is tc.expected
    assert workers.started_static_pods_by_fullname == tc.expected_started
    assert workers.waiting_to_start_static_pods_by_fullname == tc.expected_waiting
    retried = [uid for uid, _ in harness.queue.items]
    assert retried == (["0"] if tc.expected is PodStart.LATER else [])


@pytest.mark.parametrize("why", ["evicted", "deleted", ""])
def test_content_stays_until_it_is_known_how_the_containers_ended(why: str, harness: Harness) -> None:
    status = harness.workers.pod_sync_statuses[types.UID("0")] = PodSyncStatus(fullname="pod_ns", terminating_at=NOW)
    status.evicted, status.deleted = why == "evicted", why == "deleted"
    assert not harness.workers.should_pod_content_be_removed(types.UID("0"))
    status.terminated_at = NOW
    assert harness.workers.should_pod_content_be_removed(types.UID("0")) == bool(why)


# ---- sync_known_pods ----


class TwentyPods:
    """Provide pods that all ran once. All but 2 and 14 were killed, every second of these because it was deleted."""

    def __init__(self, harness: Harness) -> None:
        self.pods = {str(i): new_named_pod(str(i), "ns", "name") for i in range(20)}
        for pod in self.pods.values():
            harness.sync(pod)
        assert len(harness.workers.pod_updates) == 20
        for uid, pod in self.pods.items():
            if uid not in ("2", "14"):
                killed = v1.deepcopy(pod)
                killed.metadata.deletion_timestamp = at(5) if int(uid) % 2 == 0 else None
                harness.kill(killed)

    def running(self) -> list[v1.Pod]:
        return [self.pods["2"], self.pods["14"]]


def _answers(workers: pod_workers.PodWorkers, uid: str) -> list[bool]:
    """Return the results of all queries about a pod."""
    queries: list[Callable[[types.UID], bool]] = [
        workers.should_pod_containers_be_terminating,
        workers.is_pod_termination_requested,
        workers.could_have_running_containers,
        workers.should_pod_runtime_be_removed,
        workers.should_pod_content_be_removed,
        workers.should_pod_be_finished,
        workers.is_pod_known_terminated,
        workers.is_pod_known,
    ]
    return [query(types.UID(uid)) for query in queries]


_OF_UNKNOWN_POD = [False, False, True, False, False, False, False, False]


def test_answers_about_pods(harness: Harness) -> None:
    TwentyPods(harness)
    assert {uid: _answers(harness.workers, uid) for uid in ("0", "1", "2", "abc")} == {
        "0": [True, True, False, True, True, True, True, True],  # This pod was deleted.
        "1": [True, True, False, True, False, True, True, True],  # This pod was killed.
        "2": [False, False, True, False, False, False, False, True],  # This pod is running.
        "abc": _OF_UNKNOWN_POD,  # The sources have not been read.
    }


def test_unknown_pod_is_taken_for_gone_once_sources_and_runtime_were_read(harness: Harness) -> None:
    workers = harness.workers
    workers.sync_known_pods(TwentyPods(harness).running())
    assert _answers(workers, "abc") == _OF_UNKNOWN_POD, "the runtime may have it"
    workers.mark_pods_synced()
    assert _answers(workers, "abc") == [True, False, False, True, True, True, False, False]


def test_terminated_pods_that_are_not_wanted_any_more_are_forgotten(harness: Harness) -> None:
    workers = harness.workers
    workers.sync_known_pods(TwentyPods(harness).running())
    assert set(workers.pod_updates) == {"2", "14"}
    assert set(workers.pod_sync_statuses) == {"2", "14"}


def test_running_pods_that_are_not_wanted_any_more_are_ended_before_they_are_forgotten(harness: Harness) -> None:
    workers = harness.workers
    workers.sync_known_pods(TwentyPods(harness).running())
    workers.sync_known_pods([])
    harness.drain()
    assert not workers.pod_updates
    assert set(workers.pod_sync_statuses) == {"2", "14"}
    assert workers.should_pod_content_be_removed(types.UID("2")), "a pod that no source contains counts as deleted"
    workers.sync_known_pods([])
    assert not workers.pod_sync_statuses


def test_the_end_of_a_pod_that_comes_back_is_tried_again(harness: Harness) -> None:
    pod = new_static_pod("1", "p")
    harness.sync(pod, CREATE)
    harness.syncer.on_terminating = _fail
    harness.kill(pod)
    # The retry is due while no source has the pod, so the kubelet drops it.
    assert "1" in harness.queue.get_work()
    harness.sync(pod, CREATE)
    assert harness.queue.get_work() == ["1"]
    harness.syncer.on_terminating = lambda ctx, pod, fn: None
    harness.sync(pod, SYNC)
    assert harness.status("1").finished


def test_a_pod_that_comes_back_while_it_ends_is_forgotten_afterwards(harness: Harness) -> None:
    pod = new_named_pod("1", "ns", "pod", is_static=True)
    harness.sync(pod, CREATE)
    harness.syncer.on_terminating = _fail
    harness.kill(pod)
    harness.sync(pod, CREATE)
    assert set(harness.workers.sync_known_pods([pod])) == {"1"}, "the pod is not forgotten before it has finished"
    harness.syncer.on_terminating = lambda ctx, pod, fn: None
    harness.sync(pod)
    assert harness.workers.sync_known_pods([pod]) == {}
    harness.syncer.processed.clear()
    harness.sync(pod, CREATE)
    assert harness.syncer.processed["1"] == [SyncRecord("sync", "pod", CREATE)]


def _at_pod(name: str) -> UpdatePodOptions:
    return UpdatePodOptions(pod=v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("pod-uid"), name=name)))


@pytest.mark.parametrize(
    ("status", "orphan", "removed", "expect_pending"),
    [
        pytest.param(PodSyncStatus(finished=True), False, True, None, id="finished"),
        pytest.param(PodSyncStatus(fullname="fake"), False, False, None, id="not started"),
        pytest.param(PodSyncStatus(fullname="fake"), True, True, None, id="orphan, not started"),
        pytest.param(
            PodSyncStatus(fullname="fake", observed_runtime=True),
            True,
            False,
            None,
            id="orphan in the runtime",
        ),
        pytest.param(PodSyncStatus(started_at=at(1)), True, False, None, id="orphan, started, no update yet"),
        pytest.param(
            PodSyncStatus(started_at=at(1), terminating_at=at(2)),
            True,
            False,
            None,
            id="orphan, terminating, no update yet",
        ),
        pytest.param(
            PodSyncStatus(started_at=at(1), terminating_at=at(2), active_update=_at_pod("1")),
            True,
            False,
            _at_pod("1"),
            id="orphan, terminating",
        ),
        pytest.param(
            PodSyncStatus(
                started_at=at(1),
                terminating_at=at(2),
                working=True,
                pending_update=_at_pod("2"),
                active_update=_at_pod("1"),
            ),
            True,
            False,
            _at_pod("2"),
            id="orphan, terminating, with another update waiting",
        ),
        pytest.param(
            PodSyncStatus(started_at=at(1), terminating_at=at(2), terminated_at=at(3), active_update=_at_pod("1")),
            True,
            False,
            _at_pod("1"),
            id="orphan, terminated",
        ),
        pytest.param(
            PodSyncStatus(
                started_at=at(1),
                terminating_at=at(2),
                terminated_at=at(3),
                working=True,
                pending_update=_at_pod("2"),
                active_update=_at_pod("1"),
            ),
            True,
            False,
            _at_pod("2"),
            id="orphan, terminated, with another update waiting",
        ),
    ],
)
def test_remove_terminated_worker(
    status: PodSyncStatus,
    orphan: bool,
    removed: bool,
    expect_pending: UpdatePodOptions | None,
    harness: Harness,
) -> None:
    workers, uid = harness.workers, "pod-uid"
    status = workers.pod_sync_statuses[types.UID(uid)] = replace(status)
    updates: golang.Channel[None] = golang.Channel(1)
    workers.pod_updates[types.UID(uid)] = updates
    if status.working:
        updates.send(None)
    assert workers.remove_terminated_worker_locked(types.UID(uid), status, orphan) is removed
    assert (uid not in workers.pod_sync_statuses) is removed
    assert _is_closed(updates) is removed
    if removed:
        return
    assert status.pending_update == expect_pending
    assert status.deleted is orphan
    if expect_pending is not None:
        assert status.working


@pytest.mark.parametrize(
    ("spec", "deletion", "override", "expected"),
    [
        pytest.param(30, None, None, 30, id="the spec's if there is nothing else"),
        pytest.param(30, 5, None, 5, id="the deletion's"),
        pytest.param(30, 5, 2, 2, id="the kill's"),
        pytest.param(30, 0, None, 1, id="at least 1 when deleted with 0"),
        pytest.param(30, 5, 0, 1, id="at least 1 when killed with 0"),
        pytest.param(None, None, None, 1, id="at least 1 when nothing is said"),
        pytest.param(30, 0, 50, 1, id="a kill does not bring back what the deletion took"),
    ],
)
def test_calculate_effective_grace_period(
    spec: int | None, deletion: int | None, override: int | None, expected: int
) -> None:
    pod = _running()
    pod.spec.termination_grace_period_seconds = spec
    pod.metadata.deletion_grace_period_seconds = deletion
    options = KillPodOptions(pod_termination_grace_period_seconds_override=override)
    assert pod_workers.calculate_effective_grace_period(PodSyncStatus(), pod, options) == expected


def test_states_have_names() -> None:
    assert [str(s) for s in (SYNC_POD, TERMINATING_POD, TERMINATED_POD)] == [
        "sync",
        "terminating",
        "terminated",
    ]


# ---- A model of everything at once ----


@dataclass
class Life:
    """Describe one incarnation of a UID, from the first update until it is forgotten."""

    status: PodSyncStatus
    synced: bool = False
    stopping: bool = False
    stopped: bool = False
    grace_period: int | None = None


class Model(Harness):
    """Do random things to a few pods, even in the middle of their steps, and check the invariants."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.desired: dict[str, v1.Pod] = {}
        self.busy: set[str] = set()
        self.lives: dict[str, Life] = {}
        # These static pods, which share a name, have run sync_pod and have not finished.
        self.up: set[str] = set()
        self.running: set[str] = set()
        self.kills: list[tuple[str, golang.Channel[None]]] = []
        # Keep errors here, because a worker would take an error in a step as a reason to retry.
        self.faults: list[AssertionError] = []
        self.depth = 0
        self.calm = False
        self.steps = 0
        self.syncer.on_sync = self._keeping_faults(self._on_sync)
        self.syncer.on_terminating = self._keeping_faults(self._on_terminating)
        self.syncer.on_terminating_runtime = self._keeping_faults(self._on_terminating_runtime)
        self.syncer.on_terminated = self._keeping_faults(self._on_terminated)
        self.templates = [
            new_named_pod("api-1", "ns", "one"),
            new_named_pod("api-2", "ns", "two"),
            new_static_pod("static-1", "same"),
            new_static_pod("static-2", "same"),
            new_static_pod("static-3", "same"),
        ]

    def _keeping_faults(self, hook: Callable[P, T]) -> Callable[P, T]:
        def keeping(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return hook(*args, **kwargs)
            except AssertionError as err:
                self.faults.append(err)
                raise

        return keeping

    # ---- Actions of the kubelet and of its environment ----

    def act(self) -> None:
        """Do one random action."""
        template = self.random.choice(self.templates)
        uid = template.metadata.uid
        pod = self.desired.get(uid)
        match self.random.randrange(10):
            case 0 | 1 if pod is None:
                self.desired[uid] = template
                self._send(CREATE, template)
            case 2 | 3 if pod is not None:
                self._send(UPDATE, pod)
            case 4 if pod is not None:
                self._send(KILL, self.desired.pop(uid))
            case 5 if pod is not None and not kubetypes.is_static_pod(pod):
                pod = self.desired[uid] = v1.deepcopy(pod)
                pod.metadata.deletion_timestamp = self.clock.now()
                pod.metadata.deletion_grace_period_seconds = self.random.randrange(40)
                self._send(UPDATE, pod)
            case 6 if pod is not None:
                self._kill(pod)
            case 7:
                self.housekeeping()
            case 8:
                self.retry()
            case 9:
                # The source drops the pod without an update.
                self.desired.pop(uid, None)
        self.check()

    def _send(self, update_type: kubetypes.SyncPodType, pod: v1.Pod) -> None:
        self.workers.update_pod(self.ctx, UpdatePodOptions(update_type=update_type, pod=pod))

    def _kill(self, pod: v1.Pod) -> None:
        completed: golang.Channel[None] = golang.Channel(1)
        self.kills.append((pod.metadata.uid, completed))
        grace_period = self.random.choice([None, 0, 5, 50])
        kill = KillPodOptions(completed, self.random.random() < 0.5, None, grace_period)
        options = UpdatePodOptions(update_type=KILL, pod=pod, kill_pod_options=kill)
        self.workers.update_pod(self.ctx, options)

    def retry(self) -> None:
        """Sync the pods that are due in the work queue, as the sync loop does."""
        for uid in self.queue.get_work():
            if uid in self.desired:
                self._send(SYNC, self.desired[uid])

    def housekeeping(self) -> None:
        """Run one housekeeping.

        Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).HandlePodCleanups
        """
        known = self.workers.sync_known_pods(list(self.desired.values()))
        for uid, pod in self.desired.items():
            if uid not in known:
                self._send(CREATE, pod)
        for uid in sorted(self.running - set(known)):
            orphan = running_pod(uid, uid, "ns")
            self.workers.update_pod(self.ctx, UpdatePodOptions(update_type=KILL, running_pod=orphan))
        self.workers.mark_pods_synced()

    def work(self) -> None:
        """Let a random worker do one step."""
        inputs = list(self.inputs)
        self.random.shuffle(inputs)
        for worker in inputs:
            if self.step(worker):
                self.check()
                return

    # ---- Invariants ----

    def check(self) -> None:
        workers = self.workers
        for uid, ch in list(self.kills):
            if _is_closed(ch):
                self.kills.remove((uid, ch))
                assert uid not in self.running, f"{uid}: kill completed while it runs"
        for uid, status in workers.pod_sync_statuses.items():
            assert not status.finished or uid not in workers.pod_updates, f"{uid}: finished, yet has a worker"
            assert status.finished or uid in workers.pod_updates, f"{uid}: not finished, yet has no worker"
            assert status.terminated_at is None or status.terminating_at is not None, (
                f"{uid}: terminated without a request"
            )
        for uid in self.running:
            assert (
                workers.could_have_running_containers(types.UID(uid))
                or not workers.pods_synced
                or (uid not in workers.pod_sync_statuses)
            ), f"{uid}: said not to run"

    @contextmanager
    def _step(self, uid: str) -> Iterator[Life]:
        assert uid not in self.busy, f"{uid}: two steps at a time"
        self.busy.add(uid)
        self.steps += 1
        status = self.status(uid)
        life = self.lives.get(uid)
        if life is None or life.status is not status:
            life = self.lives[uid] = Life(status)
        try:
            yield life
            self._meanwhile()
        finally:
            self.busy.remove(uid)

    def _meanwhile(self) -> None:
        """Act while a worker is in the middle of a step."""
        if self.depth == 3 or self.calm:
            return
        self.depth += 1
        for _ in range(self.random.randrange(4)):
            self.random.choice([self.act, self.work])()
        self.depth -= 1

    def _maybe_fail(self, ctx: golang.Context) -> None:
        err = ctx.err()
        if err is not None:
            raise err
        if not self.calm and self.random.random() < 0.2:
            raise RuntimeError("injected")

    def _on_sync(self, ctx: golang.Context, pod: v1.Pod) -> bool:
        uid = pod.metadata.uid
        with self._step(uid) as life:
            assert not life.stopping, f"{uid}: set up again while it terminates"
            if kubetypes.is_static_pod(pod):
                self.up.add(uid)
                assert self.up == {uid}, f"two static pods of one name: {self.up}"
            life.synced = True
            self.running.add(uid)
        self._maybe_fail(ctx)
        return not self.calm and self.random.random() < 0.1

    def _on_terminating(self, ctx: golang.Context, pod: v1.Pod, fn: PodStatusFunc | None) -> None:
        uid = pod.metadata.uid
        with self._step(uid) as life:
            life.stopping = True
            assert not life.stopped, f"{uid}: stopped twice"
            grace_period = self.syncer.processed[uid][-1].grace_period
            if grace_period is not None:
                assert grace_period >= 1
                assert life.grace_period is None or grace_period <= life.grace_period, f"{uid}: longer grace period"
                life.grace_period = grace_period
        self._maybe_fail(ctx)
        life.stopped = True
        self.running.discard(uid)

    def _on_terminating_runtime(self, pod: kubecontainer.Pod) -> None:
        with self._step(pod.id):
            pass
        if not self.calm and self.random.random() < 0.2:
            raise RuntimeError("injected")
        self.running.discard(pod.id)
        self.up.discard(pod.id)

    def _on_terminated(self, ctx: golang.Context, pod: v1.Pod) -> None:
        uid = pod.metadata.uid
        with self._step(uid) as life:
            assert life.stopped, f"{uid}: cleaned up before it was stopped"
            assert uid not in self.running
        self._maybe_fail(ctx)
        self.up.discard(uid)


@pytest.mark.parametrize("seed", range(60))
def test_model(seed: int) -> None:
    model = Model(seed)
    try:
        for _ in range(600):
            model.random.choice([model.act, model.work, model.work])()
        # No pod is desired any more, and nothing fails any more: all pods must terminate.
        model.desired.clear()
        model.calm = True
        for _ in range(10):
            model.housekeeping()
            model.drain()
            model.check()
        assert not model.faults
        workers = model.workers
        assert model.steps > 20, "the model has done too little to mean anything"
        assert not model.running
        assert not model.up
        assert not model.kills, "someone still waits for a kill"
        assert not workers.pod_sync_statuses
        assert not workers.pod_updates
        assert not workers.started_static_pods_by_fullname
        assert not workers.waiting_to_start_static_pods_by_fullname
    finally:
        model.close()


# ---- With threads ----


def worker_threads() -> set[threading.Thread]:
    return set(threads_named("podworker-"))


@contextmanager
def threaded() -> Iterator[tuple[Harness, Callable[[], None]]]:
    """Yield a harness whose workers have threads, and a function that waits until they are idle."""
    harness = Harness()
    harness.workers.worker_channel_fn = None
    workers = harness.workers

    def drain() -> None:
        def idle() -> bool:
            with workers.pod_lock:
                return not any(status.working for status in workers.pod_sync_statuses.values())

        wait_for("the workers are idle", idle)

    before = worker_threads()
    try:
        yield harness, drain
    finally:
        harness.close()
        wait_for("the workers' threads have ended", lambda: worker_threads() <= before)


def test_update_pod_parallel() -> None:
    with threaded() as (harness, drain):
        for i in range(20):
            for j in range(i, 20):
                options = UpdatePodOptions(update_type=CREATE, pod=new_named_pod(str(j), "ns", str(i)))
                harness.workers.update_pod(harness.ctx, options)
        assert {t.name for t in worker_threads()} >= {f"podworker-{i}" for i in range(20)}
        drain()
        for i in range(20):
            records = harness.syncer.processed[str(i)]
            assert 1 <= len(records) <= i + 1
            assert records[-1].name == str(i), "the last update is always seen"


def test_threads_end_with_their_pods() -> None:
    with threaded() as (harness, drain):
        before = worker_threads()
        pods = [new_named_pod(str(i), "ns", str(i), is_static=i % 2 == 0) for i in range(30)]
        for pod in pods:
            harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=pod))
        drain()
        assert len(worker_threads() - before) == 30
        harness.workers.sync_known_pods([])
        wait_for("all workers have ended", lambda: worker_threads() <= before)
        assert harness.workers.sync_known_pods([]) == {}
        assert not harness.workers.pod_sync_statuses


def test_threads_end_with_the_kubelet() -> None:
    with threaded() as (harness, _):
        errs: list[Exception | None] = []
        entered = threading.Event()

        def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
            if pod.metadata.uid == "syncing":
                entered.set()
                ctx.wait(None)
                errs.append(ctx.err())
                raise ctx.err() or AssertionError
            return False

        harness.syncer.on_sync = sync
        for uid in ("idle", "syncing"):
            harness.workers.update_pod(
                harness.ctx, UpdatePodOptions(update_type=CREATE, pod=new_named_pod(uid, "ns", uid))
            )
        assert entered.wait(30)
        harness.cancel()
        wait_for("all workers have ended", lambda: not worker_threads())
        assert [type(err) for err in errs] == [golang.Canceled]


def test_a_kill_interrupts_the_wait_for_a_status() -> None:
    with threaded() as (harness, drain):
        pod = _running()
        harness.cache.blocks = True
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=pod))
        wait_for("the worker waits for the status", lambda: len(harness.cache.min_times) == 1)
        harness.cache.blocks = False
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=KILL, pod=pod))
        drain()
        assert [r.step for r in harness.syncer.processed["1"]] == ["terminating", "terminated"]
        assert not harness.recorder.drain()


def test_kill_pod_now() -> None:
    with threaded() as (harness, drain):
        functions: list[PodStatusFunc | None] = []
        harness.syncer.on_terminating = lambda ctx, pod, fn: functions.append(fn)
        kill_pod = pod_workers.kill_pod_now(harness.ctx, harness.workers, harness.recorder)

        def status_fn(status: v1.PodStatus) -> None: ...

        kill_pod(new_named_pod("test", "ns", "test"), False, 0, status_fn)
        drain()
        assert harness.syncer.processed["test"] == [
            SyncRecord("terminating", "test", grace_period=1),
            SyncRecord("terminated", "test"),
        ]
        assert functions == [status_fn]


def test_kill_pod_now_of_a_finished_pod() -> None:
    with threaded() as (harness, drain):
        kill_pod = pod_workers.kill_pod_now(harness.ctx, harness.workers, harness.recorder)
        pod = new_named_pod("test", "ns", "test")
        kill_pod(pod, False, None, None)
        drain()
        kill_pod(pod, True, None, None)


def test_kill_pod_now_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_workers, "_MIN_KILL_TIMEOUT", 0.01)
    with threaded() as (harness, _):
        harness.syncer.on_terminating = _fail
        kill_pod = pod_workers.kill_pod_now(harness.ctx, harness.workers, harness.recorder)
        with pytest.raises(TimeoutError, match="timeout waiting to kill pod"):
            kill_pod(new_named_pod("test", "ns", "test"), True, 0, None)
        assert len(harness.recorder.drain()) == 1


def test_kill_pod_now_waits_not_for_ever_for_a_pod_that_has_chosen_how_long() -> None:
    with threaded() as (harness, _):
        harness.syncer.on_terminating = _fail
        kill_pod = pod_workers.kill_pod_now(harness.ctx, harness.workers, harness.recorder, longest_wait=0.01)
        pod = new_named_pod("test", "ns", "test")
        pod.spec.termination_grace_period_seconds = 10**9
        with pytest.raises(TimeoutError, match=r"not terminated within .* seconds, and may take longer"):
            kill_pod(pod, True, None, None)
        assert harness.recorder.drain() == []


def test_kill_pod_now_ends_with_the_kubelet() -> None:
    with threaded() as (harness, _):

        def terminating(ctx: golang.Context, pod: v1.Pod, fn: PodStatusFunc | None) -> None:
            harness.cancel()
            raise ctx.err() or AssertionError

        harness.syncer.on_terminating = terminating
        kill_pod = pod_workers.kill_pod_now(harness.ctx, harness.workers, harness.recorder)
        with pytest.raises(golang.Canceled):
            kill_pod(new_named_pod("test", "ns", "test"), True, 0, None)


# ---- Failures between steps, and a machine without threads ----


@failures
@pytest.mark.parametrize("where", ["allow_pod_start_locked", "complete_work", "_complete"])
def test_worker_lives_on_when_it_fails_between_steps(
    monkeypatch: pytest.MonkeyPatch, where: str, err: Exception
) -> None:
    with threaded() as (harness, drain):
        monkeypatch.setattr(harness.workers, where, failing_once(getattr(harness.workers, where), err))
        update = UpdatePodOptions(update_type=CREATE, pod=_running())
        harness.workers.update_pod(harness.ctx, update)
        wait_for("the pod is queued for a later sync", lambda: harness.queue.items != [])
        # The kubelet syncs the pod once more.
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(pod=_running()))
        drain()
        assert harness.syncer.processed["1"][-1].step == "sync"
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=KILL, pod=_running()))
        drain()
        assert harness.status("1").finished


@failures
@pytest.mark.parametrize("where", ["_sync", "_pod_uid_and_ref_for_update", "_is_canceled"])
def test_worker_lives_on_when_it_fails_around_a_step(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, where: str, err: Exception
) -> None:
    """The outcome of the step still counts for observers and for the next step."""
    harness.syncer.on_sync = raising(RuntimeError("injected"))
    owner = harness.workers if where == "_sync" else pod_workers
    monkeypatch.setattr(owner, where, failing_once(getattr(owner, where), err))
    harness.sync(_running(), CREATE)
    assert "1" in harness.queue.get_work()
    harness.kill(_running())
    assert harness.status("1").finished


@failures
@pytest.mark.parametrize("where", ["is_static_pod", "go"])
def test_worker_that_was_half_made_is_made_with_the_next_update(
    monkeypatch: pytest.MonkeyPatch, where: str, err: Exception
) -> None:
    with threaded() as (harness, drain):
        owner = kubetypes if where == "is_static_pod" else golang
        create = UpdatePodOptions(update_type=CREATE, pod=_running())
        with monkeypatch.context() as patch:
            patch.setattr(owner, where, failing_once(getattr(owner, where), err))
            with contextlib.suppress(type(err)):
                harness.workers.update_pod(harness.ctx, create)
        assert not harness.workers.has_worker(UID)
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(pod=_running()))
        drain()
        assert [record.step for record in harness.syncer.processed["1"]] == ["sync"]


@failures
def test_pod_whose_first_update_fails_is_not_known(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    """Housekeeping starts the pod again until it is known."""
    allocations = harness.workers._allocation_manager
    failing = failing_once(allocations.update_pod_from_allocation, err)
    monkeypatch.setattr(allocations, "update_pod_from_allocation", failing)
    with pytest.raises(type(err)):
        harness.sync(_running(), CREATE)
    assert not harness.workers.sync_known_pods([_running()])
    harness.sync(_running(), CREATE)
    assert [record.step for record in harness.syncer.processed["1"]] == ["sync"]


@failures
def test_kill_that_cannot_be_taken_in_is_as_good_as_none(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    """The next kill cancels the running sync."""
    allocations = harness.workers._allocation_manager

    errs: list[Exception | None] = []

    def sync(ctx: golang.Context, pod: v1.Pod) -> bool:
        failing = failing_once(allocations.update_pod_from_allocation, err)
        monkeypatch.setattr(allocations, "update_pod_from_allocation", failing)
        kill = UpdatePodOptions(update_type=KILL, pod=pod)
        with pytest.raises(type(err)):
            harness.workers.update_pod(harness.ctx, kill)
        harness.workers.update_pod(harness.ctx, kill)
        errs.append(ctx.err())
        raise ctx.err() or AssertionError("not cancelled")

    harness.syncer.on_sync = sync
    harness.sync(_running(), CREATE)
    assert [type(err) for err in errs] == [golang.Canceled]
    assert [r.step for r in harness.syncer.processed["1"]] == ["sync", "terminating", "terminated"]


@failures
def test_orphan_whose_worker_fails_between_steps_is_ended_by_housekeeping(
    monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    with threaded() as (harness, _):
        monkeypatch.setattr(harness.workers, "start_pod_sync", failing_once(harness.workers.start_pod_sync, err))
        update = UpdatePodOptions(update_type=KILL, running_pod=ORPHAN, kill_pod_options=kill_options(1))
        harness.workers.update_pod(harness.ctx, update)
        wait_for("the worker has failed", lambda: harness.queue.items != [])
        harness.workers.sync_known_pods([])
        wait_for("the orphan has ended", lambda: not harness.workers.is_pod_known(UID))
        assert [r.step for r in harness.syncer.processed["1"]] == ["terminating runtime"]


@failures
def test_sync_whose_follow_up_fails_has_been_done(err: Exception) -> None:
    with threaded() as (harness, drain):
        harness.syncer.post_sync = raising(err)
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=_running()))
        drain()
        assert not harness.status("1").progress.err


@pytest.mark.parametrize("static", [False, True])
def test_worker_that_finds_no_thread_is_started_with_the_next_sync(static: bool) -> None:
    pod, other = new_named_pod("1", "ns", "p", is_static=static), new_named_pod("2", "ns", "other")
    with threaded() as (harness, drain):
        with golangtesting.out_of_threads("podworker-1") as refused:
            for update in (UpdatePodOptions(update_type=CREATE, pod=pod), UpdatePodOptions(pod=pod)):
                harness.workers.update_pod(harness.ctx, update)
            harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=other))
            wait_for("the other pod is synced", lambda: bool(harness.syncer.processed["2"]))
        assert refused == ["podworker-1"] * 2
        assert "1" in harness.queue.get_work()
        assert list(harness.workers.pod_updates) == ["2"], "the failed thread must leave no channel"
        assert (harness.workers.has_worker(UID), harness.workers.has_worker(types.UID("2"))) == (False, True)
        events = harness.recorder.drain()
        assert len(events) == 2 and "error starting pod worker" in events[0] and "TasksMax" in events[0]
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(pod=pod))
        drain()
        assert [r.step for r in harness.syncer.processed["1"]] == ["sync"]
        assert not harness.workers.waiting_to_start_static_pods_by_fullname


def test_kill_of_a_pod_whose_worker_found_no_thread_is_carried_out_later() -> None:
    with threaded() as (harness, drain):
        completed: golang.Channel[None] = golang.Channel(1)
        kill = UpdatePodOptions(update_type=KILL, pod=_running(), kill_pod_options=KillPodOptions(completed))
        with golangtesting.out_of_threads("podworker-"):
            harness.workers.update_pod(harness.ctx, UpdatePodOptions(update_type=CREATE, pod=_running()))
            harness.workers.update_pod(harness.ctx, kill)
        harness.workers.update_pod(harness.ctx, UpdatePodOptions(pod=_running()))
        assert golangtesting.closes(completed)
        drain()


def test_orphan_whose_worker_found_no_thread_is_forgotten_and_found_again() -> None:
    with threaded() as (harness, _):
        update = UpdatePodOptions(update_type=KILL, running_pod=ORPHAN, kill_pod_options=kill_options(1))
        with golangtesting.out_of_threads("podworker-"):
            harness.workers.update_pod(harness.ctx, update)
        assert harness.workers.sync_known_pods([]) == {}
        harness.workers.update_pod(harness.ctx, update)
        wait_for("the orphan has ended", lambda: not harness.workers.is_pod_known(UID))
        assert [r.step for r in harness.syncer.processed["1"]] == ["terminating runtime"]
