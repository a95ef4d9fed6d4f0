"""Run one worker per pod, which moves the pod through setup, teardown and clean-up.

Go: pkg/kubelet/pod_workers.go

The life of a pod in the eyes of its worker, and the results of queries meanwhile:

                                            A      B        C        D        E        F        G
    could_have_running_containers           ├─────────────────────────────────┤
    sync_pod is called                             ├─────────────────┤
    is_pod_termination_requested                            ├───────────────────────────────────┤
    should_pod_containers_be_terminating *                           ├────────────────────────────────
    sync_terminating_pod is called                                   ├────────┤
    is_pod_known_terminated                                                   ├─────────────────┤
    should_pod_runtime_be_removed        *                                    ├───────────────────────
    should_pod_content_be_removed        *                                    ├───────────────────────
    sync_terminated_pod is called                                             ├────────┤
    should_pod_be_finished               *                                             ├──────────────

    A  update_pod receives the pod for the first time, and starts its worker.
    B  The pod may start: at once, or, for a static pod, when no other pod of its full name runs. From now
       on the worker calls sync_pod again and again.
    C  The pod must terminate: it was deleted, evicted or killed, or its phase is terminal.
    D  sync_pod has returned, after a cancellation if necessary. From now on no container starts. If sync_pod
       itself reports that the pod is terminal, C and D are the same moment.
    E  sync_terminating_pod has succeeded, after any number of attempts: no container runs any more.
    F  sync_terminated_pod has succeeded: the pod is finished, and its worker's thread ends.
    G  sync_known_pods finds that no source has the pod any more, or that it was created again, and forgets it.

    *  Also true before A, once all sources and the runtime have been read: a pod that is unknown by then may be
       removed. The content of a pod that was neither deleted nor evicted may be removed only from G on.

A pod never returns to an earlier state. After G a pod with the same UID may start from the beginning.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import activity, events, eviction, metrics
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.errors import NetworkNotReadyError
from kubelet.util import queue
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.tools import record

# A PodStatusFunc writes the reason for a kill into the pod's status.
PodStatusFunc = Callable[[v1.PodStatus], None]
# The worker calls a PostSyncFunc after a sync; see SyncPodResult.
PostSyncFunc = Callable[[], None]
# A WorkerChannelFunc maps a UID and its channel to the channel from which the worker reads instead.
WorkerChannelFunc = Callable[[types.UID, golang.Channel[None]], golang.Channel[None]]

# The delays in the work queue grow by a random fraction of up to these values, so that pods do not all sync at once.
WORKER_RESYNC_INTERVAL_JITTER_FACTOR = 0.5
WORKER_BACK_OFF_PERIOD_JITTER_FACTOR = 0.5

# After an error that should pass soon, the pod is synced again after this time, in seconds.
BACK_OFF_ON_TRANSIENT_ERROR_PERIOD = 1.0

# kill_pod_now waits at least this long, in seconds, to allow for the calls between the kubelet and the runtime.
_MIN_KILL_TIMEOUT = 10.0


@dataclass(slots=True)
class KillPodOptions:
    """Describe how the pod worker kills a pod."""

    # The worker closes this channel once no container of the pod runs, or if there is nothing to kill. The kill can
    # take arbitrarily long, but the channel is closed by the time could_have_running_containers returns False.
    completed_ch: golang.Channel[None] | None = None
    # `evict` is true if the node is short of a resource: the pod's content is then removed earlier.
    evict: bool = False
    # `pod_status_func` writes the reason for the kill into the pod's status. The function of the last kill counts,
    # because an eviction, for example, may follow a preemption.
    pod_status_func: PodStatusFunc | None = None
    # The override replaces the pod's own grace period, in seconds, if it is shorter.
    pod_termination_grace_period_seconds_override: int | None = None


@dataclass(slots=True)
class UpdatePodOptions:
    """Describe one change to a pod for update_pod."""

    update_type: kubetypes.SyncPodType = kubetypes.SYNC_POD_SYNC
    # `start_time` is the time at which the change was first seen; the duration metric starts there.
    start_time: datetime | None = None
    # `pod` is the desired pod. It is required unless `running_pod` is given.
    pod: v1.Pod | None = None
    # `mirror_pod` is the mirror pod of a static pod, if it has one.
    mirror_pod: v1.Pod | None = None
    # `running_pod` is a pod that runs in the runtime but belongs to no source. Only a kill may carry it.
    running_pod: kubecontainer.Pod | None = None
    kill_pod_options: KillPodOptions | None = None


class PodWorkerState(enum.IntEnum):
    """List the phases of a pod's life in its worker."""

    # The pod should be running.
    SYNC_POD = 0
    # No container starts any more; containers may still run, and the worker stops them.
    TERMINATING_POD = 1
    # No container runs, and none will; the worker cleans up the rest.
    TERMINATED_POD = 2

    def __str__(self) -> str:
        return ("sync", "terminating", "terminated")[self]


SYNC_POD = PodWorkerState.SYNC_POD
TERMINATING_POD = PodWorkerState.TERMINATING_POD
TERMINATED_POD = PodWorkerState.TERMINATED_POD


class PodStart(enum.Enum):
    """State whether a pod may start or, if it already runs, be terminated."""

    NOW = enum.auto()
    # The pod must wait for other pods; it is queued for a retry.
    LATER = enum.auto()
    NEVER = enum.auto()


@dataclass(frozen=True, slots=True)
class SyncPodResult:
    """Hold the result of one sync_pod call."""

    # `is_terminal` is true if the pod has reached a terminal phase by itself.
    is_terminal: bool = False
    # The worker calls `post_sync` after it has recorded the end of the sync, so that everything that the call triggers
    # counts as newer.
    post_sync: PostSyncFunc | None = None


@dataclass(frozen=True, slots=True)
class PodWorkerSync:
    """Describe one worker in the result of sync_known_pods."""

    state: PodWorkerState
    # `orphan` is true if no source contains the pod any more.
    orphan: bool = False
    # `has_config` is true if the kubelet knows the pod's spec, not only the runtime's view of the pod.
    has_config: bool = False
    # `static` is true if the pod has a spec and is static.
    static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorkerSnapshot:
    """Describe one pod and its worker at one moment, for debug pages. Times are from the pod workers' clock."""

    # `pod` is None if only the runtime knows the pod.
    pod: v1.Pod | None = None
    namespace: str = ""
    name: str = ""
    phase: PodWorkerState = SYNC_POD
    # `has_worker` is true if a thread works for the pod.
    has_worker: bool = False
    # `pending` is true if an update waits for the worker.
    pending: bool = False
    finished: bool = False
    deleted: bool = False
    evicted: bool = False
    # `waits_to_start` is true if another static pod of the same full name comes first. If that pod is already running,
    # `runs_instead` is its UID.
    waits_to_start: bool = False
    runs_instead: str = ""
    # `grace_period` is in seconds.
    grace_period: int = 0
    terminating_at: datetime | None = None
    terminated_at: datetime | None = None
    # The next fields come from StepProgress.
    step_began: datetime | None = None
    step_ended: datetime | None = None
    next_step: datetime | None = None
    steps: int = 0
    failures: int = 0
    err: str = ""
    # `activity` is what the worker currently does, None without a worker. `failed_at` is what it did when the last step
    # failed.
    activity: Activity | None = None
    failed_at: Activity | None = None
    failed_actions: frozenset[kubecontainer.SyncAction] = frozenset()
    missing: metav1.StatusDetails | None = None


@dataclass(slots=True)
class PodWork:
    """Describe one step of a worker."""

    work_type: PodWorkerState
    options: UpdatePodOptions


class PodSyncer(Protocol):
    """Define the steps of a pod's life that a pod worker calls; a Go interface.

    A pod is synced until it terminates by itself or has to terminate. Then the worker calls sync_terminating_pod until
    it succeeds, and after that sync_terminated_pod until it succeeds.

    The workers of different pods call these methods at the same time. A method raises an exception if it could not
    finish; the worker then calls it again later. When ctx is cancelled, because the pod must terminate or must
    terminate sooner, a method should raise golang.Canceled as soon as it can.
    """

    def sync_pod(
        self,
        ctx: golang.Context,
        update_type: kubetypes.SyncPodType,
        pod: v1.Pod,
        mirror_pod: v1.Pod | None,
        pod_status: kubecontainer.PodStatus,
    ) -> SyncPodResult:
        """Set up the pod, and start or restart its containers."""
        ...

    def sync_terminating_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        grace_period: int | None,
        pod_status_fn: PodStatusFunc | None,
    ) -> None:
        """Stop the pod's containers within `grace_period` seconds; return only if none of them runs.

        The worker repeats the call until it succeeds, with grace periods that never grow. After that, other parts of
        the kubelet remove the pod's volumes and devices.
        """
        ...

    def sync_terminating_runtime_pod(self, ctx: golang.Context, running_pod: kubecontainer.Pod) -> None:
        """Stop the containers of a pod that only the runtime knows; return only if none of them runs."""
        ...

    def sync_terminated_pod(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        """Release the resources that must be free before the pod counts as finished on this node."""
        ...


@dataclass(slots=True)
class StepProgress:
    """Record the steps of one pod for debug pages. Times are from the pod workers' clock."""

    # `began_at` is the time at which the current step began, or None between steps.
    began_at: datetime | None = None
    # The next fields describe the last step: its end, its error or an empty string, and the number of failures in a
    # row. The exception itself is not kept, because it would keep all objects of the step alive.
    ended_at: datetime | None = None
    err: str = ""
    failures: int = 0
    steps: int = 0
    # The next step is due at this time if nothing triggers one before.
    next_at: datetime | None = None
    # `waits_to_start` is true if another static pod of the same full name comes first.
    waits_to_start: bool = False
    # `position` is what the worker currently does. `failed_at` is what it did when the last step failed.
    position: activity.Position = field(default_factory=activity.Position)
    failed_at: Activity | None = None
    # `failed_actions` are the actions of the runtime that failed in the last step. `missing` is the API object whose
    # absence made the last step fail.
    failed_actions: frozenset[kubecontainer.SyncAction] = frozenset()
    missing: metav1.StatusDetails | None = None

    def ended(self, now: datetime, err: Exception | None) -> None:
        """Record the end of a step. A cancelled step has not failed, because the next one replaces it."""
        self.began_at, self.ended_at = None, now
        self.steps += 1
        if err is not None and _is_canceled(err):
            return
        self.err = "" if err is None else str(err) or type(err).__name__
        self.failures = 0 if err is None else self.failures + 1
        self.failed_at = None if err is None else self.position.failed_at
        self.failed_actions = kubecontainer.failed_actions(err)
        self.missing = apierrors.what_is_not_found(err)


@dataclass(slots=True)
class PodSyncStatus:
    """Hold the state of one pod. PodWorkers.pod_lock guards it."""

    # `cancel_fn` cancels the worker's current step, or its last one.
    cancel_fn: Callable[[], None] | None = None
    fullname: str = ""
    # `working` is true if an update waits for the worker, or the worker is handling one.
    working: bool = False
    # `pending_update` is the next update for the worker. A newer update replaces it, because only the latest state
    # counts. No other part of the kubelet sees it before the worker takes it.
    pending_update: UpdatePodOptions | None = None
    # `active_update` is the last update that the worker took. It keeps the pod and the mirror pod of earlier updates if
    # later ones carry none. It is set as soon as the pod may start; from then on all parts of the kubelet that act on
    # running pods treat it as the desired state.
    active_update: UpdatePodOptions | None = None

    # The pod was first seen, was allowed to start, had to terminate, and had no running container any more at these
    # times. `terminating_at` can be set before the worker has begun to terminate the pod.
    synced_at: datetime | None = None
    started_at: datetime | None = None
    terminating_at: datetime | None = None
    terminated_at: datetime | None = None
    # `grace_period`, in seconds, is set together with `terminating_at`. From then on it can only become shorter.
    grace_period: int = 0
    # The worker closes these channels when the pod has terminated. Nothing may be added after that.
    notify_post_terminating: list[golang.Channel[None]] = field(default_factory=list)
    # The list holds the status functions of all kills so far. Nothing may be added after the pod has terminated.
    status_post_terminating: list[PodStatusFunc] = field(default_factory=list)

    # `started_terminating` is true once the worker has left sync_pod and knows of the termination. From then on other
    # parts of the kubelet may assume that no further container starts.
    started_terminating: bool = False
    # `deleted` is true if the API server's pod has a deletion timestamp, or no source contains the pod any more.
    deleted: bool = False
    evicted: bool = False
    # `finished` is true once sync_terminated_pod has succeeded; the worker's thread then ends. The entry stays until
    # sync_known_pods forgets it, so that a terminated pod is not started again while its source still has it.
    finished: bool = False
    # `restart_requested` is true if a pod with this UID was added again after this one was killed. The kubelet forgets
    # this pod once it has finished.
    restart_requested: bool = False
    # `observed_runtime` is true if the runtime has or had this pod. Such a pod must be terminated even if this process
    # did not start it. An orphan that neither started nor was in the runtime needs no termination.
    observed_runtime: bool = False
    # `snapshot` reads the worker's progress from here.
    progress: StepProgress = field(default_factory=StepProgress, compare=False)

    def is_termination_requested(self) -> bool:
        return self.terminating_at is not None

    def is_terminated(self) -> bool:
        return self.terminated_at is not None

    def is_started(self) -> bool:
        return self.started_at is not None

    def work_type(self) -> PodWorkerState:
        """Return the phase to which the next step belongs."""
        if self.is_terminated():
            return TERMINATED_POD
        if self.is_termination_requested():
            return TERMINATING_POD
        return SYNC_POD

    def merge_last_update(self, other: UpdatePodOptions) -> None:
        """Make `other` the active update, but keep the pod and the mirror pod if `other` lacks them.

        Do not copy the start time, because it measures the latency of one update. Of the kill options, keep only what a
        repetition of the kill needs.
        """
        opts = self.active_update
        if opts is None:
            opts = self.active_update = UpdatePodOptions()
        # An update with a running pod carries no spec, and must not displace one. The pod may be from an earlier
        # kubelet process, so there may be no spec at all.
        if opts.pod is None or other.running_pod is None:
            opts.pod = other.pod
        opts.running_pod = other.running_pod
        if other.mirror_pod is not None:
            opts.mirror_pod = other.mirror_pod
        if (kill := other.kill_pod_options) is not None:
            opts.kill_pod_options = replace(kill, completed_ch=None, pod_status_func=None)


@dataclass(slots=True)
class _StartedSync:
    """Hold what start_pod_sync returns to the worker."""

    ctx: golang.Context
    cancel: Callable[[], None]
    update: PodWork
    pod_start: PodStart = PodStart.NOW


@dataclass(slots=True)
class _SyncOutcome:
    """Hold the outcome of one step."""

    # `last_sync_time` is from the steady clock.
    last_sync_time: datetime | None
    is_terminal: bool = False
    err: Exception | None = None


@dataclass(frozen=True, slots=True)
class _WorkerProgress:
    """Hold what a worker carries from one step to the next."""

    # `last_sync_time` is the steady-clock time at which the worker's last step ended.
    last_sync_time: datetime | None
    # `done` is true if the worker has nothing left to do.
    done: bool = False


@dataclass(frozen=True, slots=True)
class _Target:
    """Identify the pod of an update."""

    uid: types.UID
    namespace: str
    name: str
    # `is_runtime_pod` is true if the kubelet has no spec of the pod, only the runtime's view.
    is_runtime_pod: bool


class AllocatedPod(Protocol):
    """Hold a pod with its allocated resources; see allocation.AllocatedPod."""

    @property
    def pod(self) -> v1.Pod: ...


class AllocationManager(Protocol):
    """Define what the pod workers need from the allocation manager. They call it with `pod_lock` held."""

    def update_pod_from_allocation(self, pod: v1.Pod) -> AllocatedPod:
        """Return the pod with its allocated resources in place of its requested ones."""
        ...


class PodWorkers:
    """Run one thread per pod, and track whether each pod is starting, running, terminating or finished.

    The desired pods arrive through update_pod and, once per housekeeping, through sync_known_pods. The workers call the
    PodSyncer, never twice at the same time for one UID. To find out whether a pod's containers may be running, the
    other parts of the kubelet must ask the pod workers, not the pod manager: the pod manager holds only the desired
    pods.

    Once a pod has to terminate, a pod with its UID can start only after the pod has finished and housekeeping has
    forgotten it. So a terminated pod cannot restart by accident.

    Setup and teardown are separate. The parts of the kubelet that set things up for a pod ask
    should_pod_containers_be_terminating, and then stop. The parts that tear things down ask
    should_pod_runtime_be_removed (volumes, cgroups) or should_pod_content_be_removed (directories), and then begin. The
    `is_…` queries and could_have_running_containers are for the kubelet's own loops.

    Static pods with the same full name run one after another, in the order of their arrival. All methods are
    thread-safe.
    """

    def __init__(
        self,
        pod_syncer: PodSyncer,
        recorder: record.EventRecorder,
        work_queue: queue.WorkQueue,
        resync_interval: float,
        back_off_period: float,
        pod_cache: kubecontainer.ROCache,
        allocation_manager: AllocationManager,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create the pod workers.

        `resync_interval` and `back_off_period` are the seconds until a pod's next sync after a success and after a
        failure.
        """
        # `pod_lock` guards the five fields below and every PodSyncStatus.
        self.pod_lock = threading.Lock()
        # `pods_synced` is true once update_pod has received every pod that should exist or that runs.
        self.pods_synced = False
        # The running workers read from these channels. A message tells the worker to take `pending_update`. Send only
        # with the lock held.
        self.pod_updates: dict[types.UID, golang.Channel[None]] = {}
        self.pod_sync_statuses: dict[types.UID, PodSyncStatus] = {}
        # For each full name, these fields hold the static pod that runs, and the static pods that wait for it.
        self.started_static_pods_by_fullname: dict[str, types.UID] = {}
        self.waiting_to_start_static_pods_by_fullname: dict[str, list[types.UID]] = {}

        self.pod_syncer = pod_syncer
        self.work_queue = work_queue
        self.resync_interval = resync_interval
        self.back_off_period = back_off_period
        self.clock = clock or clocklib.RealClock()
        # Tests use this function to delay messages between update_pod and the worker.
        self.worker_channel_fn: WorkerChannelFunc | None = None
        self._recorder = recorder
        self._pod_cache = pod_cache
        self._allocation_manager = allocation_manager

    # ---- Queries ----

    def is_pod_known(self, uid: types.UID) -> bool:
        """Report whether update_pod has received the pod, and the pod has not been forgotten since."""
        with self.pod_lock:
            return uid in self.pod_sync_statuses

    def begun_pods(self) -> Set[types.UID]:
        """Return the UIDs of the pods on which a worker has started to work.

        Such a pod is forgotten only after it has terminated.
        """
        with self.pod_lock:
            return {
                uid
                for uid, status in self.pod_sync_statuses.items()
                if uid in self.pod_updates and (status.is_started() or status.observed_runtime)
            }

    def has_worker(self, uid: types.UID) -> bool:
        """Report whether the pod has a worker thread. In Go every known pod that is not finished has one."""
        with self.pod_lock:
            return uid in self.pod_updates

    def snapshot(self) -> dict[types.UID, PodWorkerSnapshot]:
        """Return the current state of all known pods, by UID.

        Go: none
        """
        with self.pod_lock:
            return {uid: self._snapshot_locked(uid, status) for uid, status in self.pod_sync_statuses.items()}

    def _snapshot_locked(self, uid: types.UID, status: PodSyncStatus) -> PodWorkerSnapshot:
        progress = status.progress
        update = status.active_update or status.pending_update
        name, _, namespace = status.fullname.rpartition("_")
        started_uid = self.started_static_pods_by_fullname.get(status.fullname, "")
        return PodWorkerSnapshot(
            pod=None if update is None else update.pod,
            namespace=namespace,
            name=name,
            phase=status.work_type(),
            has_worker=uid in self.pod_updates,
            pending=status.pending_update is not None,
            finished=status.finished,
            deleted=status.deleted,
            evicted=status.evicted,
            waits_to_start=progress.waits_to_start and not status.is_started(),
            runs_instead=started_uid if started_uid != uid else "",
            grace_period=status.grace_period,
            terminating_at=status.terminating_at,
            terminated_at=status.terminated_at,
            step_began=progress.began_at,
            step_ended=progress.ended_at,
            next_step=progress.next_at,
            steps=progress.steps,
            failures=progress.failures,
            err=progress.err,
            activity=progress.position.activity,
            failed_at=progress.failed_at,
            failed_actions=progress.failed_actions,
            missing=progress.missing,
        )

    def is_pod_known_terminated(self, uid: types.UID) -> bool:
        """Report whether the pod is known and has no running container left.

        The result is False again once the pod has been forgotten. Use it only to exclude pods from the desired ones, as
        admission does.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return status is not None and status.is_terminated()

    def could_have_running_containers(self, uid: types.UID) -> bool:
        """Report whether the pod has not terminated yet; True for an unknown pod until all sources have reported.

        Once all sources have reported, an unknown pod is known not to run.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return not self.pods_synced if status is None else not status.is_terminated()

    def should_pod_be_finished(self, uid: types.UID) -> bool:
        """Report whether sync_terminated_pod has succeeded; True for an unknown pod after mark_pods_synced."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return self.pods_synced if status is None else status.finished

    def is_pod_termination_requested(self, uid: types.UID) -> bool:
        """Report whether the pod is known and must terminate. Its containers may still be starting.

        Do not use this in clean-up loops, because it is false for forgotten pods: ask
        should_pod_containers_be_terminating.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return status is not None and status.is_termination_requested()

    def should_pod_containers_be_terminating(self, uid: types.UID) -> bool:
        """Report whether the worker has begun to terminate the pod, so that no container starts any more.

        A requested termination is not enough, because the worker may still be in sync_pod. Parts of the kubelet that
        set things up for pods in the background stop once this is true; sync_pod must not block on what they then no
        longer provide.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return self.pods_synced if status is None else status.started_terminating

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool:
        """Report whether the resources that running containers use, such as volumes, can be removed.

        The caller must own only resources that nobody needs after the termination. Containers, for example, must stay
        until the pod is deleted, because they hold its logs.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return self.pods_synced if status is None else status.is_terminated()

    def should_pod_content_be_removed(self, uid: types.UID) -> bool:
        """Report whether all content of the pod can be removed: it was evicted or deleted, and has terminated.

        After an eviction the content is removed even if the pod is not deleted, because the node needs the resources.
        Garbage collection may remove some content even while this is false.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            if status is None:
                return self.pods_synced
            # DIVERGES (fault of Go): the content of an evicted pod stays until all its containers have stopped.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).ShouldPodContentBeRemoved: the Go kubelet removes it while
            # the pod is still terminating.
            # Why: a container that is removed so early has no exit code in the pod's status.
            # Test: pod_workers_test.py:test_content_stays_until_it_is_known_how_the_containers_ended
            return (status.evicted or status.deleted) and status.is_terminated()

    def is_pod_for_mirror_pod_terminating_by_full_name(self, pod_full_name: str) -> bool:
        """Report whether the static pod of this full name is terminating.

        If it is, its mirror pod must stay until the static pod has terminated.
        """
        with self.pod_lock:
            uid = self.started_static_pods_by_fullname.get(pod_full_name)
            status = None if uid is None else self.pod_sync_statuses.get(uid)
            return status is not None and status.is_termination_requested() and not status.is_terminated()

    # ---- Updates from the kubelet ----

    def update_pod(self, ctx: golang.Context, options: UpdatePodOptions) -> None:
        """Notify the pod's worker of a change; start a worker if the pod has none.

        The pod terminates if it is marked for deletion, has a terminal phase, or is killed. A termination is final:
        further updates can only shorten its grace period. ctx is the kubelet's context, with which the worker ends too.
        """
        options = replace(options)
        target = _update_target(options)
        if target is None:
            return
        cancel = new_worker = None
        with self.pod_lock:
            first_time = target.uid not in self.pod_sync_statuses
            status = self._sync_status_for_locked(target, options.pod)
            pod = _resolve_pod_locked(status, options, target)
            if self._is_update_ignored_locked(status, options, target, first_time):
                return
            if options.pod is not None:
                # The worker must see the allocated resources, not the requested ones. This call may fail, so it comes
                # before any change of the state. Otherwise a failure could leave a termination half recorded: the
                # worker would not be notified again, its sync would not be cancelled, and housekeeping does not add a
                # known pod again.
                options.pod = self._allocation_manager.update_pod_from_allocation(options.pod).pod
            self.pod_sync_statuses[target.uid] = status
            became_terminating = self._request_termination_locked(status, pod, options, target)
            shortened = _accept_kill_options_locked(status, pod, options)
            self._take_update_locked(target, status, options)
            if target.uid in self.pod_updates:
                self._notify_locked(target.uid)
            else:
                new_worker = self._add_worker_locked(target.uid, pod, status)
            if became_terminating or shortened:
                cancel = status.cancel_fn
        # Starting a thread may take long, and cancelling runs callbacks, so both happen without the lock.
        if new_worker is not None:
            self._start_worker(ctx, pod, target, new_worker, status)
        if cancel is not None:
            _log(3, "Cancelling current pod sync", target, options, workType=str(status.work_type()))
            cancel()

    def _start_worker(
        self, ctx: golang.Context, pod: v1.Pod, target: _Target, updates: golang.Channel[None], life: PodSyncStatus
    ) -> None:
        """Start the pod's thread. If that fails, the next sync of the pod or housekeeping tries again."""
        try:
            golang.go(self._run_worker, ctx, target.uid, updates, life, name=f"podworker-{target.uid}")
        except Exception as err:
            # The system has no thread left, or not even memory for its name.
            with self.pod_lock:
                # The pending update stays. The caller of the next update_pod finds that the pod has no worker.
                if self.pod_sync_statuses.get(target.uid) is life:
                    self._cleanup_pod_updates_locked(target.uid)
            self._sync_later(target.uid)
            klog.error_s(err, "Failed to start a pod worker", pod=klog.kobj(pod), podUID=target.uid)
            self._recorder.eventf(pod, v1.EVENT_TYPE_WARNING, events.FAILED_SYNC, "error starting pod worker: %s", err)

    def _sync_later(self, uid: types.UID) -> None:
        """Have the pod synced again after the delay of a failed sync."""
        self.work_queue.enqueue(uid, wait.jitter(self.back_off_period, WORKER_BACK_OFF_PERIOD_JITTER_FACTOR))

    def _sync_status_for_locked(self, target: _Target, pod: v1.Pod | None) -> PodSyncStatus:
        status = self.pod_sync_statuses.get(target.uid)
        if status is not None:
            return status
        klog.v(4).info_s(
            "Pod is being synced for the first time",
            pod=klog.kref(target.namespace, target.name),
            podUID=target.uid,
        )
        now = self.clock.now()
        status = PodSyncStatus(synced_at=now, fullname=kubecontainer.build_pod_full_name(target.name, target.namespace))
        if pod is not None and self._ended_before_we_started(pod):
            # `terminated_at` keeps admission from counting this pod as active (kubernetes#105523). But
            # sync_terminated_pod still has to run in this process, to release the pod's resources and to send its last
            # status; so the pod is not finished.
            status.terminating_at = status.terminated_at = now
            status.started_terminating = True
        return status

    def _ended_before_we_started(self, pod: v1.Pod) -> bool:
        """Report whether source and runtime agree that the pod has terminated, as after a restart of the kubelet.

        An earlier process has then stopped all containers of the pod.
        """
        if pod.status.phase not in (v1.POD_FAILED, v1.POD_SUCCEEDED):
            return False
        try:
            return is_pod_status_cache_terminal(self._pod_cache.get(pod.metadata.uid))
        except Exception as err:
            # The runtime's status of the pod is unknown, so the pod goes through the whole termination.
            klog.v(4).info_s("No cached status for terminal pod", pod=klog.kobj(pod), err=err)
            return False

    def _is_update_ignored_locked(
        self, status: PodSyncStatus, options: UpdatePodOptions, target: _Target, first_time: bool
    ) -> bool:
        if not first_time and status.is_termination_requested() and options.update_type == kubetypes.SYNC_POD_CREATE:
            # A new pod has the same UID, which happens with static pods and, rarely, with the API server. The old
            # incarnation must terminate before the new one starts.
            status.restart_requested = True
            # DIVERGES (fault of Go): the kubelet retries the termination of a pod that was removed and comes back with
            # the same UID.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).UpdatePod: the Go kubelet does not queue the termination
            # again. If it failed, and its retry was due while no source had the pod, the retry is lost.
            # Why: the earlier pod would never terminate, and the new one would never start.
            # Test: pod_workers_test.py:test_the_end_of_a_pod_that_comes_back_is_tried_again
            self._sync_later(target.uid)
            _log(
                4,
                "Pod is terminating but has been requested to restart with same UID, will be reconciled later",
                target,
                options,
            )
            return True
        if status.finished:
            # DIVERGES (fault of Go): the kill of a finished pod completes at once.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).UpdatePod: the Go kubelet never completes it.
            # Why: eviction and preemption would wait for the kill until they time out.
            # Test: pod_workers_test.py:test_a_kill_of_a_finished_pod_is_completed_at_once
            _complete_kill(options)
            _log(4, "Pod is finished processing, no further updates", target, options)
            return True
        if status.is_terminated() and target.is_runtime_pod:
            # Housekeeping used an older list of the runtime's pods; the worker is about to finish.
            _complete_kill(options)
            _log(
                3,
                "Pod is waiting for termination, ignoring runtime-only kill until after pod worker is fully terminated",
                target,
                options,
            )
            return True
        return False

    def _request_termination_locked(
        self, status: PodSyncStatus, pod: v1.Pod, options: UpdatePodOptions, target: _Target
    ) -> bool:
        """Mark the pod as terminating if this update requires it; return whether it did."""
        if status.is_termination_requested():
            return False
        kill = options.kill_pod_options
        if target.is_runtime_pod:
            message = "Pod is orphaned and must be torn down"
            status.deleted = True
        elif pod.metadata.deletion_timestamp is not None:
            message = "Pod is marked for graceful deletion, begin teardown"
            status.deleted = True
        elif pod.status.phase in (v1.POD_FAILED, v1.POD_SUCCEEDED):
            message = "Pod is in a terminal phase (success/failed), begin teardown"
        elif options.update_type == kubetypes.SYNC_POD_KILL and kill is not None and kill.evict:
            message = "Pod is being evicted by the kubelet, begin teardown"
            status.evicted = True
        elif options.update_type == kubetypes.SYNC_POD_KILL:
            message = "Pod is being removed by the kubelet, begin teardown"
        else:
            return False
        _log(4, message, target, options)
        status.terminating_at = self.clock.now()
        return True

    def _add_worker_locked(self, uid: types.UID, pod: v1.Pod, status: PodSyncStatus) -> golang.Channel[None]:
        """Create the channel of a new worker, with a message in it; return the channel from which the worker reads."""
        # The channel has room for one message, so sending never blocks.
        updates: golang.Channel[None] = golang.Channel(1)
        updates.try_send(None)
        read = self.worker_channel_fn(uid, updates) if self.worker_channel_fn is not None else updates
        if kubetypes.is_static_pod(pod):
            waiting = self.waiting_to_start_static_pods_by_fullname.setdefault(status.fullname, [])
            if uid not in waiting:  # The pod already waits if its thread could not be started.
                waiting.append(uid)
        # The entry is added last, because a pod with an entry here counts as one with a running worker.
        self.pod_updates[uid] = updates
        return read

    def _run_worker(
        self, ctx: golang.Context, uid: types.UID, updates: golang.Channel[None], life: PodSyncStatus
    ) -> None:
        try:
            self.pod_worker_loop(ctx, uid, updates, life)
        finally:
            klog.v(3).info_s("Pod worker has stopped", podUID=uid)

    def _take_update_locked(self, target: _Target, status: PodSyncStatus, options: UpdatePodOptions) -> None:
        """Make the update the pending one."""
        # The latency is measured from the oldest change that the worker has not seen.
        pending = status.pending_update
        if (
            pending is not None
            and pending.start_time is not None
            and options.start_time is not None
            and pending.start_time < options.start_time
        ):
            options.start_time = pending.start_time
        status.pending_update = options
        status.working = True
        _log(4, "Notifying pod of pending update", target, options, workType=str(status.work_type()))

    def _notify_locked(self, uid: types.UID) -> bool:
        """Wake the worker; return False if a message already waits for it, or if it has no channel."""
        updates = self.pod_updates.get(uid)
        return updates is not None and updates.try_send(None)

    # ---- Permission to start ----

    def allow_pod_start_locked(self, pod: v1.Pod) -> PodStart:
        """Decide whether the pod may start. Static pods wait until no other pod of their full name runs.

        If the pod must wait, queue it for a retry.
        """
        if not kubetypes.is_static_pod(pod):
            return PodStart.NOW
        uid = pod.metadata.uid
        status = self.pod_sync_statuses.get(uid)
        if status is None:
            klog.error_s(
                None,
                "Pod sync status does not exist, the worker should not be running",
                pod=klog.kobj(pod),
                podUID=uid,
            )
            return PodStart.NEVER
        if status.is_termination_requested():
            # DIVERGES (fault of Go): after a restart of the kubelet, a static pod that has to terminate is
            # terminated properly if it may be running.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).allowPodStart: a pod that this process has not started
            # counts as terminated.
            # Why: the pod's containers would lose their volumes while they run, and the next pod of its name would
            # start beside it.
            # Test: pod_workers_test.py:test_static_pod_that_runs_since_before_a_restart_is_ended_in_order
            if not self._may_run_locked(uid):
                return PodStart.NEVER
            self.started_static_pods_by_fullname.setdefault(status.fullname, uid)
            return PodStart.NOW
        if not self._allow_static_pod_start_locked(status.fullname, uid):
            self._sync_later(uid)
            return PodStart.LATER
        return PodStart.NOW

    def _allow_static_pod_start_locked(self, fullname: str, uid: types.UID) -> bool:
        started_uid = self.started_static_pods_by_fullname.get(fullname)
        if started_uid is not None:
            return started_uid == uid
        waiting = self.waiting_to_start_static_pods_by_fullname.get(fullname, [])
        for i, waiting_uid in enumerate(waiting):
            if not self._can_still_start_locked(waiting_uid):
                continue
            if waiting_uid != uid:
                self.waiting_to_start_static_pods_by_fullname[fullname] = waiting[i:]
                return False
            waiting = waiting[i + 1 :]
            break
        if waiting:
            self.waiting_to_start_static_pods_by_fullname[fullname] = waiting
        else:
            self.waiting_to_start_static_pods_by_fullname.pop(fullname, None)
        self.started_static_pods_by_fullname[fullname] = uid
        return True

    def _can_still_start_locked(self, uid: types.UID) -> bool:
        """Report whether the waiting pod still has to be started or, if it is already running, terminated."""
        status = self.pod_sync_statuses.get(uid)
        if status is None or status.is_terminated():
            return False
        return not status.is_termination_requested() or self._may_run_locked(uid)

    def _may_run_locked(self, uid: types.UID, in_doubt: bool = True) -> bool:
        """Report whether a pod that this process has not started may have something running.

        If the runtime's status of the pod is unknown, return `in_doubt`.
        """
        try:
            return not is_pod_status_cache_terminal(self._pod_cache.get(uid))
        except Exception as err:
            # The cache stores any error of the last inspection; the caller knows which result is safe.
            klog.v(4).info_s("No cached status for a pod that is to end", podUID=uid, err=err)
            return in_doubt

    def _release_static_pod_locked(self, uid: types.UID, fullname: str) -> None:
        """Release the full name that the static pod holds."""
        if self.started_static_pods_by_fullname.get(fullname) != uid:
            return
        del self.started_static_pods_by_fullname[fullname]
        # In Go the next static pod waits for its retry.
        for waiting_uid in self.waiting_to_start_static_pods_by_fullname.get(fullname, []):
            if self._can_still_start_locked(waiting_uid):
                self.work_queue.enqueue(waiting_uid, 0.0)
                return

    def _cleanup_unstarted_pod_locked(self, pod: v1.Pod, status: PodSyncStatus) -> None:
        """Mark a pod as finished that had to terminate before it could start."""
        uid = pod.metadata.uid
        self._cleanup_pod_updates_locked(uid)
        if not status.is_termination_requested():
            klog.v(4).info_s(
                "Pod worker is complete but did not have terminatingAt set, likely programmer error",
                pod=klog.kobj(pod),
                podUID=uid,
            )
        if status.is_terminated():
            klog.v(4).info_s(
                "Pod worker is complete and had terminatedAt set, likely programmer error",
                pod=klog.kobj(pod),
                podUID=uid,
            )
        status.finished = True
        status.working = False
        status.terminated_at = self.clock.now()
        # DIVERGES (fault of Go): the kill of a pod that was never started completes.
        # Go: pkg/kubelet/pod_workers.go, (*podWorkers).cleanupUnstartedPod: the Go kubelet never completes it.
        # Why: eviction and preemption would wait for the kill until they time out.
        # Test: pod_workers_test.py:test_a_kill_of_a_pod_that_waits_to_start_is_completed
        _notify_post_terminating_locked(status)
        self._release_static_pod_locked(uid, status.fullname)

    # ---- The worker ----

    def start_pod_sync(
        self, parent_ctx: golang.Context, pod_uid: types.UID, life: PodSyncStatus
    ) -> _StartedSync | None:
        """Take the pending update, and decide whether the pod may start if it has not started yet.

        Return None if there is nothing to do. From here on `active_update` shows what the worker is doing. If the pod
        may not start yet, the update becomes the pending one again and `active_update` stays unset, because other parts
        of the kubelet treat a pod with an active update as started.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(pod_uid)
            # DIVERGES (fault of Go): the worker of a forgotten pod does not touch a later pod with the same UID.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).startPodSync: the worker only checks whether the UID is
            # known.
            # Why: if the old worker still has a message, two workers would work on one pod at the same time.
            # Test: pod_workers_test.py:test_a_worker_works_for_one_life_of_a_pod_only
            if status is not life:
                return None
            if not status.working:
                klog.v(4).info_s("Pod should be marked as working by the pod worker, programmer error", podUID=pod_uid)
            if status.pending_update is None:
                status.working = False
                klog.v(4).info_s("Pod worker received no pending work, programmer error?", podUID=pod_uid)
                return None
            update = PodWork(status.work_type(), status.pending_update)
            status.pending_update = None
            if (updates := self.pod_updates.get(pod_uid)) is not None:
                updates.try_recv()  # Drop a message about the update that was just taken.
            ctx, cancel = golang.with_cancel(parent_ctx)
            status.cancel_fn = cancel
            start = _StartedSync(ctx, cancel, update)
            try:
                self._admit_sync_locked(pod_uid, status, start)
            except Exception:
                # The step has not begun, so keep the update for the next attempt.
                status.pending_update = update.options
                cancel()
                raise
            return start

    def _admit_sync_locked(self, pod_uid: types.UID, status: PodSyncStatus, start: _StartedSync) -> None:
        options = start.update.options
        # An orphan from the runtime need not start; its worker terminates it directly.
        is_orphan = options.running_pod is not None and start.update.work_type == TERMINATING_POD
        if status.is_started() or is_orphan:
            status.merge_last_update(options)
            return
        assert options.pod is not None, "update_pod accepts runtime pods only for termination"
        start.pod_start = self.allow_pod_start_locked(options.pod)
        ref = {"pod": klog.kobj(options.pod), "podUID": pod_uid}
        if start.pod_start is PodStart.NEVER:
            self._cleanup_unstarted_pod_locked(options.pod, status)
            _observe_duration(options, "terminated")
            klog.v(4).info_s("Pod cannot start ever", **ref, updateType=str(start.update.work_type))
            return
        if start.pod_start is PodStart.LATER:
            status.pending_update = options
            status.working = False
            status.progress.waits_to_start = True
            klog.v(4).info_s("Pod cannot start yet", **ref)
            return
        status.progress.waits_to_start = False
        status.started_at = self.clock.now()
        status.merge_last_update(options)
        metrics.CONTAINERS_PER_POD_COUNT.observe(len(options.pod.spec.containers))

    def pod_worker_loop(
        self,
        parent_ctx: golang.Context,
        pod_uid: types.UID,
        pod_updates: golang.Channel[None],
        life: PodSyncStatus,
    ) -> None:
        """Handle one pod's updates until the pod has finished, its channel is closed, or the kubelet stops.

        A worker serves one incarnation of a UID, that is one PodSyncStatus.

        1. Wait to start: no two pods of one UID, and no two static pods of one full name, run at the same time.
        2. Sync: bring the pod in the runtime to the state that its spec describes.
        3. Terminating: stop all containers.
        4. Terminated: release the pod's resources.

        update_pod and sync_known_pods drive the worker. After a failure the pod goes into the work queue, and the
        kubelet must call update_pod when it is due; sync_known_pods retries only the pods that no source contains any
        more. The worker moves from one phase to the next without waiting for an update.
        """
        progress = _WorkerProgress(last_sync_time=None)
        ctx = activity.with_position(parent_ctx, life.progress.position)
        with activity.doing(ctx, Activity.BETWEEN_STEPS):
            while not progress.done and _wait_for_update(ctx, pod_updates):
                progress = self._work_off_update(ctx, pod_uid, life, progress.last_sync_time)

    def _work_off_update(
        self, parent_ctx: golang.Context, pod_uid: types.UID, life: PodSyncStatus, last_sync_time: datetime | None
    ) -> _WorkerProgress:
        """Run one step of the pod, if the pod may have one."""
        start = outcome = None
        with self._or_sync_later(parent_ctx, pod_uid):
            start = self.start_pod_sync(parent_ctx, pod_uid, life)
        if start is None:
            return _WorkerProgress(last_sync_time)
        try:
            if start.pod_start is not PodStart.NOW:
                return _WorkerProgress(last_sync_time, done=start.pod_start is PodStart.NEVER)
            with self._or_sync_later(parent_ctx, pod_uid):
                with self.pod_lock:
                    life.progress.began_at = self.clock.now()
                outcome = self._sync(start.ctx, start.update, last_sync_time)
                with self.pod_lock:
                    life.progress.ended(self.clock.now(), outcome.err)
        finally:
            start.cancel()
        if outcome is None:
            return _WorkerProgress(last_sync_time)
        done = False
        with self._or_sync_later(parent_ctx, pod_uid):
            done = self._complete(start.update, outcome)
        # Break the cycle between the error and the outcome: the error refers to the frame of _sync, which refers to the
        # outcome. Otherwise all objects of the step would stay in memory until the next garbage collection.
        outcome.err = None
        return _WorkerProgress(outcome.last_sync_time, done)

    @contextmanager
    def _or_sync_later(self, ctx: golang.Context, pod_uid: types.UID) -> Iterator[None]:
        """Contain a failure between the steps of a pod: the worker keeps running, and the pod is synced again later."""
        done = False
        try:
            with contain("Pod worker failed", ctx, podUID=pod_uid):
                yield
                done = True
        finally:
            if not done:
                self._sync_later(pod_uid)

    def _sync(self, ctx: golang.Context, update: PodWork, last_sync_time: datetime | None) -> _SyncOutcome:
        """Run one step. Any exception becomes part of the outcome, because the pod is always retried."""
        outcome = _SyncOutcome(last_sync_time)
        try:
            pod_uid, pod_ref = _pod_uid_and_ref_for_update(update.options)
            klog.v(4).info_s("Processing pod event", pod=pod_ref, podUID=pod_uid, updateType=str(update.work_type))
            status = self._wait_for_status(ctx, update.options, last_sync_time)
        except Exception as err:  # _complete logs the error, and puts the pod into the work queue.
            outcome.err = err
            return outcome
        result = SyncPodResult()
        try:
            result = self._call_syncer(ctx, update, status)
        except Exception as err:  # _complete logs the error, and puts the pod into the work queue.
            outcome.err = err
        outcome.is_terminal = result.is_terminal
        outcome.last_sync_time = self.clock.steady()
        if result.post_sync is not None:
            with contain("Failed to follow up a sync", pod=pod_ref, podUID=pod_uid):
                result.post_sync()
        return outcome

    def _wait_for_status(
        self, ctx: golang.Context, options: UpdatePodOptions, last_sync_time: datetime | None
    ) -> kubecontainer.PodStatus | None:
        """Return the pod's status from a relist after the last sync; None if there is only a running pod.

        Each step therefore sees the effects of the one before it. This call may wait for the next relist, which delays
        each transition and each retry.
        """
        if options.running_pod is not None:
            return None
        assert options.pod is not None
        try:
            with activity.doing(ctx, Activity.WAITS_FOR_STATUS):
                return self._pod_cache.get_newer_than(options.pod.metadata.uid, last_sync_time, ctx)
        except golang.Canceled:
            raise
        except Exception as err:
            self._recorder.eventf(
                options.pod, v1.EVENT_TYPE_WARNING, events.FAILED_SYNC, "error determining status: %s", err
            )
            raise

    def _call_syncer(
        self, ctx: golang.Context, update: PodWork, status: kubecontainer.PodStatus | None
    ) -> SyncPodResult:
        options = update.options
        if options.running_pod is not None:
            self._acknowledge_terminating(options.running_pod.id)
            self.pod_syncer.sync_terminating_runtime_pod(ctx, options.running_pod)
            return SyncPodResult()
        assert options.pod is not None and status is not None
        match update.work_type:
            case PodWorkerState.TERMINATED_POD:
                self.pod_syncer.sync_terminated_pod(ctx, options.pod, status)
                return SyncPodResult()
            case PodWorkerState.TERMINATING_POD:
                kill = options.kill_pod_options
                grace_period = None if kill is None else kill.pod_termination_grace_period_seconds_override
                pod_status_fn = self._acknowledge_terminating(options.pod.metadata.uid)
                self.pod_syncer.sync_terminating_pod(ctx, options.pod, status, grace_period, pod_status_fn)
                return SyncPodResult()
            case _:
                return self.pod_syncer.sync_pod(ctx, options.update_type, options.pod, options.mirror_pod, status)

    def _complete(self, update: PodWork, outcome: _SyncOutcome) -> bool:
        """Move the pod on according to the outcome of the step; return whether the worker is done."""
        options, err = update.options, outcome.err
        pod_uid, pod_ref = _pod_uid_and_ref_for_update(options)
        ref = {"pod": pod_ref, "podUID": pod_uid}
        phase_transition = False
        done = False
        if err is not None and _is_canceled(err):
            # The part of the kubelet that cancelled the step has left an update for the worker.
            klog.v(2).info_s("Sync exited with context cancellation error", **ref, updateType=str(update.work_type))
        elif err is not None:
            klog.error_s(err, "Error syncing pod, skipping", **ref)
        elif update.work_type == TERMINATED_POD:
            self._complete_terminated(pod_uid)
            done = True
        elif update.work_type == TERMINATING_POD and options.running_pod is not None:
            self._complete_terminating_runtime_pod(pod_uid)
            done = True
        elif update.work_type == TERMINATING_POD:
            self._complete_terminating(pod_uid)
            phase_transition = True
        elif outcome.is_terminal:
            klog.v(4).info_s("Pod is terminal", **ref, updateType=str(update.work_type))
            self._complete_sync(pod_uid)
            phase_transition = True
        if not done:
            self.complete_work(pod_uid, phase_transition, err)
        terminated = done and update.work_type == TERMINATED_POD
        _observe_duration(options, "terminated" if terminated else str(options.update_type))
        klog.v(4).info_s("Processing pod event done", **ref, updateType=str(update.work_type))
        return done

    # ---- The end of a step ----

    def _acknowledge_terminating(self, pod_uid: types.UID) -> PodStatusFunc | None:
        """Record that no container starts any more; return the status function of the latest kill."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return None
            if status.is_termination_requested() and not status.started_terminating:
                klog.v(4).info_s("Pod worker has observed request to terminate", podUID=pod_uid)
                status.started_terminating = True
            return status.status_post_terminating[-1] if status.status_post_terminating else None

    def _complete_sync(self, pod_uid: types.UID) -> None:
        """Begin the termination of a pod that sync_pod reported as terminal, to stop what still runs.

        Such a termination is the natural end of a pod whose restart policy is not Always. update_pod handles deletion,
        eviction and a terminal phase from the API server.
        """
        with self.pod_lock:
            klog.v(4).info_s("Pod indicated lifecycle completed naturally and should now terminate", podUID=pod_uid)
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                klog.v(4).info_s("Pod had no status in completeSync, programmer error?", podUID=pod_uid)
                return
            if status.terminating_at is None:
                status.terminating_at = self.clock.now()
            else:
                klog.v(4).info_s(
                    "Pod worker attempted to set terminatingAt twice, likely programmer error", podUID=pod_uid
                )
            status.started_terminating = True
            self._requeue_last_pod_update_locked(pod_uid, status)

    def _complete_terminating(self, pod_uid: types.UID) -> None:
        """Mark the pod as terminated, notify the callers that wait for it, and queue the clean-up.

        The caller guarantees that no container of the pod runs or will run.
        """
        with self.pod_lock:
            klog.v(4).info_s("Pod terminated all containers successfully", podUID=pod_uid)
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return
            self._mark_terminated_locked(pod_uid, status)
            self._requeue_last_pod_update_locked(pod_uid, status)

    def _complete_terminating_runtime_pod(self, pod_uid: types.UID) -> None:
        """Forget an orphan whose containers have stopped. It has no API object, so no status must remain."""
        with self.pod_lock:
            klog.v(4).info_s(
                "Pod terminated all orphaned containers successfully and worker can now stop", podUID=pod_uid
            )
            self._cleanup_pod_updates_locked(pod_uid)
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return
            self._mark_terminated_locked(pod_uid, status)
            status.finished = True
            status.working = False
            del self.pod_sync_statuses[pod_uid]
            self._release_static_pod_locked(pod_uid, status.fullname)

    def _mark_terminated_locked(self, pod_uid: types.UID, status: PodSyncStatus) -> None:
        if not status.is_termination_requested():
            klog.v(4).info_s(
                "Pod worker was terminated but did not have terminatingAt set, likely programmer error",
                podUID=pod_uid,
            )
        status.terminated_at = self.clock.now()
        _notify_post_terminating_locked(status)

    def _complete_terminated(self, pod_uid: types.UID) -> None:
        """Mark the pod as finished after sync_terminated_pod has succeeded, and end its worker."""
        with self.pod_lock:
            klog.v(4).info_s("Pod is complete and the worker can now stop", podUID=pod_uid)
            self._cleanup_pod_updates_locked(pod_uid)
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return
            if not status.is_termination_requested() or not status.is_terminated():
                klog.v(4).info_s(
                    "Pod worker is complete but did not have terminatingAt or terminatedAt set, "
                    "likely programmer error",
                    podUID=pod_uid,
                )
            status.finished = True
            status.working = False
            self._release_static_pod_locked(pod_uid, status.fullname)

    def complete_work(self, pod_uid: types.UID, phase_transition: bool, sync_err: Exception | None) -> None:
        """Put the pod into the work queue for its next sync, and wake the worker if an update waits."""
        delay = self._requeue_delay(phase_transition, sync_err)
        self.work_queue.enqueue(pod_uid, delay)
        with self.pod_lock:
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return
            status.progress.next_at = self.clock.now() + timedelta(seconds=delay)
            if status.pending_update is None:
                status.working = False
            elif self._notify_locked(pod_uid):
                klog.v(4).info_s("Requeuing pod due to pending update", podUID=pod_uid)
            else:
                klog.v(4).info_s("Pending update already queued", podUID=pod_uid)

    def _requeue_delay(self, phase_transition: bool, sync_err: Exception | None) -> float:
        """Return the seconds until the next sync."""
        if phase_transition:
            return 0.0
        if sync_err is None:
            return wait.jitter(self.resync_interval, WORKER_RESYNC_INTERVAL_JITTER_FACTOR)
        if _is_for_want_of_a_network(sync_err):
            return wait.jitter(BACK_OFF_ON_TRANSIENT_ERROR_PERIOD, WORKER_BACK_OFF_PERIOD_JITTER_FACTOR)
        # If the error says when the next attempt makes sense, wait until then, and do not add the default backoff to
        # it.
        backoff = self.back_off_period
        backoff_at = kubecontainer.min_backoff_expiration(sync_err)
        if backoff_at is not None:
            # time of day: the runtime reports when the container stopped. The result is bounded below.
            backoff = (backoff_at - self.clock.now()).total_seconds()
        backoff = min(max(backoff, 0.0), self.resync_interval)
        return wait.jitter(backoff, WORKER_BACK_OFF_PERIOD_JITTER_FACTOR)

    # ---- Housekeeping ----

    def sync_known_pods(self, desired_pods: Iterable[v1.Pod]) -> dict[types.UID, PodWorkerSync]:
        """Compare the workers with the pods that should exist, and return what each worker is doing.

        The method drives the termination of pods that no source contains any more, because no update will come for
        them. Finished workers of such pods are forgotten and left out of the result, which bounds the memory for
        deleted pods. So are finished workers of pods that were created again with the same UID, which is common for
        static pods with a fixed UID; the caller then adds the new pod. Callers must not call update_pod for new pods
        between the collection of `desired_pods` and this call.
        """
        desired = {pod.metadata.uid for pod in desired_pods}
        workers = {}
        cancels: list[Callable[[], None]] = []
        with self.pod_lock:
            for uid, status in list(self.pod_sync_statuses.items()):
                orphan, was_to_end = uid not in desired, status.is_termination_requested()
                if (status.restart_requested or orphan) and self.remove_terminated_worker_locked(uid, status, orphan):
                    continue
                if status.is_termination_requested() and not was_to_end and status.cancel_fn is not None:
                    cancels.append(status.cancel_fn)
                update = status.active_update or status.pending_update
                pod = None if update is None else update.pod
                workers[uid] = PodWorkerSync(
                    state=status.work_type(),
                    orphan=orphan,
                    has_config=pod is not None,
                    static=pod is not None and kubetypes.is_static_pod(pod),
                )
        # DIVERGES (fault of Go): the kubelet cancels the sync of a pod that no source contains any more.
        # Go: pkg/kubelet/pod_workers.go, (*podWorkers).SyncKnownPods: the sync runs to its end.
        # Why: a hook for which the sync waits may run forever, and the pod would never terminate.
        # Test: pod_workers_test.py:test_the_sync_that_runs_for_an_orphan_is_cancelled
        for cancel in cancels:
            cancel()
        return workers

    def mark_pods_synced(self) -> None:
        """Declare that from now on no pod runs that update_pod has not received.

        DIVERGES (fault of Go): after a start a pod without a worker counts as possibly running, until all pods that
        only the runtime knows have workers.
        Go: pkg/kubelet/pod_workers.go, (*podWorkers).SyncKnownPods: the pod counts as not running before that.
        Why: in between, the kubelet would unmount the volumes of these pods while the containers run.
        Test: kubelet_pods_test.py:test_nothing_counts_as_unused_before_what_runs_is_given_to_workers
        """
        with self.pod_lock:
            self.pods_synced = True

    def remove_terminated_worker_locked(self, uid: types.UID, status: PodSyncStatus, orphaned: bool) -> bool:
        """Forget the pod if it is finished, or if it is an orphan that never started; return whether it was forgotten.

        After that a pod with the same UID may start. If an orphan has started, terminate it: no other part of the
        kubelet will send an update for it.
        """
        if not status.finished:
            if not orphaned:
                klog.v(4).info_s(
                    "Pod worker has been requested for removal but is still not fully terminated", podUID=uid
                )
                return False
            status.deleted = True
            has_worker = uid in self.pod_updates  # A pod whose thread could not be started has no worker.
            if has_worker and (status.is_started() or status.observed_runtime or self._may_run_locked(uid, False)):
                self._terminate_orphan_locked(uid, status)
                return False
            klog.v(4).info_s("Pod is orphaned and has not been started", podUID=uid)
        if status.restart_requested:
            klog.v(4).info_s(
                "Pod has been terminated but another pod with the same UID was created, "
                "remove history to allow restart",
                podUID=uid,
            )
        else:
            klog.v(4).info_s(
                "Pod has been terminated and is no longer known to the kubelet, remove all history",
                podUID=uid,
            )
        self._forget_locked(uid, status)
        return True

    def _terminate_orphan_locked(self, uid: types.UID, status: PodSyncStatus) -> None:
        """Have the worker terminate the pod, with the spec that the worker received last."""
        if status.is_termination_requested():
            self._requeue_last_pod_update_locked(uid, status)
            klog.v(4).info_s("Pod is orphaned and still terminating, notified the pod worker", podUID=uid)
            return
        status.terminating_at = self.clock.now()
        last = status.active_update or status.pending_update
        if last is not None and last.pod is not None:
            status.grace_period = calculate_effective_grace_period(status, last.pod, None)
        else:
            status.grace_period = 1
        self._requeue_last_pod_update_locked(uid, status)
        klog.v(4).info_s("Pod is orphaned and still running, began terminating", podUID=uid)

    def _forget_locked(self, uid: types.UID, status: PodSyncStatus) -> None:
        del self.pod_sync_statuses[uid]
        self._cleanup_pod_updates_locked(uid)
        # In Go the UID keeps waiting until another pod of that name starts.
        waiting = self.waiting_to_start_static_pods_by_fullname.get(status.fullname, [])
        if uid in waiting:
            waiting.remove(uid)
            if not waiting:
                del self.waiting_to_start_static_pods_by_fullname[status.fullname]
        # DIVERGES (fault of Go): the kill of a pod that is forgotten before its worker began completes.
        # Go: pkg/kubelet/pod_workers.go, (*podWorkers).removeTerminatedWorker: the Go kubelet never completes it.
        # Why: eviction and preemption would wait for the kill until they time out.
        # Test: pod_workers_test.py:test_a_kill_is_completed_if_the_pod_is_forgotten_first
        _notify_post_terminating_locked(status)
        self._release_static_pod_locked(uid, status.fullname)

    def _cleanup_pod_updates_locked(self, uid: types.UID) -> None:
        """Close the worker's channel, which ends the worker."""
        updates = self.pod_updates.pop(uid, None)
        if updates is not None:
            updates.close()

    def _requeue_last_pod_update_locked(self, pod_uid: types.UID, status: PodSyncStatus) -> None:
        """Give the worker its last update again, unless a newer one waits or there was none.

        DIVERGES (safer): the kubelet notifies the worker again of an update that it has not taken yet.
        Go: pkg/kubelet/pod_workers.go, (*podWorkers).requeueLastPodUpdate: the Go kubelet notifies it once.
        Why: a worker that fails to take an update, for example for lack of memory, would never terminate its pod.
        Test: pod_workers_test.py:test_orphan_whose_worker_fails_between_steps_is_ended_by_housekeeping
        """
        if status.pending_update is None:
            if status.active_update is None:
                return
            status.pending_update = replace(status.active_update)
        status.working = True
        self._notify_locked(pod_uid)


def kill_pod_now(
    ctx: golang.Context, pod_workers: PodWorkers, recorder: record.EventRecorder, longest_wait: float = math.inf
) -> eviction.KillPodFunc:
    """Return a function that kills a pod and waits until the pod has terminated.

    A kill lasts only until the kubelet restarts, unless the status function sets a terminal phase.

    The function raises TimeoutError, and records an event, if the termination takes longer than one and a half grace
    periods. If the grace period is the pod's own, which may have any length, the function waits for at most
    `longest_wait` seconds.
    """

    def kill_pod(
        pod: v1.Pod, is_evicted: bool, grace_period_override: int | None, status_fn: PodStatusFunc | None
    ) -> None:
        grace_period = grace_period_override
        if grace_period is None:
            grace_period = pod.spec.termination_grace_period_seconds or 0
        timeout = max(grace_period + grace_period // 2, _MIN_KILL_TIMEOUT)
        is_cut = grace_period_override is None and timeout > longest_wait
        if is_cut:
            timeout = longest_wait
        completed: golang.Channel[None] = golang.Channel(1)
        pod_workers.update_pod(
            ctx,
            UpdatePodOptions(
                pod=pod,
                update_type=kubetypes.SYNC_POD_KILL,
                kill_pod_options=KillPodOptions(
                    completed_ch=completed,
                    evict=is_evicted,
                    pod_status_func=status_fn,
                    pod_termination_grace_period_seconds_override=grace_period_override,
                ),
            ),
        )
        selected = golang.select(completed, ctx.done(), timeout=timeout)
        if selected.took(completed):
            return
        if selected.took(ctx.done()):
            raise ctx.err() or golang.Canceled()
        if is_cut:
            raise TimeoutError(f"the pod has not terminated within {longest_wait:g} seconds, and may take longer")
        recorder.event(
            pod,
            v1.EVENT_TYPE_WARNING,
            events.EXCEEDED_GRACE_PERIOD,
            "Container runtime did not kill the pod within specified grace period.",
        )
        raise TimeoutError("timeout waiting to kill pod")

    return kill_pod


def is_pod_status_cache_terminal(status: kubecontainer.PodStatus) -> bool:
    """Report whether neither a container nor a sandbox of the pod runs."""
    return not any(c.state == kubecontainer.CONTAINER_STATE_RUNNING for c in status.container_statuses) and not any(
        s.state == runtimeapi.SANDBOX_READY for s in status.sandbox_statuses
    )


def calculate_effective_grace_period(status: PodSyncStatus, pod: v1.Pod, options: KillPodOptions | None) -> int:
    """Return the grace period in seconds, at least 1.

    The API server's value comes first, because the API server decides about deletions. A kill may shorten it, so that
    an eviction, for example, is faster. The spec's value counts if there is neither.
    """
    overrides = [pod.metadata.deletion_grace_period_seconds]
    if options is not None:
        overrides.append(options.pod_termination_grace_period_seconds_override)
    # DIVERGES (fault of Go): a kill does not lengthen the grace period of a pod that is deleted with 0.
    # Go: pkg/kubelet/pod_workers.go, calculateEffectiveGracePeriod: 0 also stands for "not set yet", so the kill's
    # period counts.
    # Why: a grace period can only become shorter.
    # Test: pod_workers_test.py:test_calculate_effective_grace_period
    grace_period = status.grace_period or None
    for override in overrides:
        if override is not None and (grace_period is None or override < grace_period):
            grace_period = override
    if grace_period is None:
        grace_period = pod.spec.termination_grace_period_seconds or 0
    return max(grace_period, 1)


def _update_target(options: UpdatePodOptions) -> _Target | None:
    """Return the pod of the update; None if the update is invalid."""
    running_pod = options.running_pod
    if options.pod is None:
        assert running_pod is not None, "an update needs a pod or a running pod"
        if options.update_type == kubetypes.SYNC_POD_KILL:
            return _Target(running_pod.id, running_pod.namespace, running_pod.name, is_runtime_pod=True)
        klog.info_s(
            "Pod update is ignored, runtime pods can only be killed",
            pod=klog.kref(running_pod.namespace, running_pod.name),
            podUID=running_pod.id,
            updateType=str(options.update_type),
        )
        return None
    meta = options.pod.metadata
    target = _Target(meta.uid, meta.namespace, meta.name, is_runtime_pod=False)
    if running_pod is not None:
        options.running_pod = None
        _log(
            0,
            "Pod update included RunningPod which is only valid when Pod is not specified",
            target,
            options,
        )
    return target


def _resolve_pod_locked(status: PodSyncStatus, options: UpdatePodOptions, target: _Target) -> v1.Pod:
    """Return the pod by which to judge the update.

    For a runtime pod this is the last known spec, which then also replaces the running pod in the update. Without one
    it is a placeholder made from the runtime's data, which suffice only to terminate the pod. The placeholder is not
    stored.
    """
    if not target.is_runtime_pod:
        assert options.pod is not None
        return options.pod
    status.observed_runtime = True
    for known in (status.pending_update, status.active_update):
        if known is not None and known.pod is not None:
            options.pod = known.pod
            options.running_pod = None
            return known.pod
    assert options.running_pod is not None
    return options.running_pod.to_api_pod()


def _accept_kill_options_locked(status: PodSyncStatus, pod: v1.Pod, options: UpdatePodOptions) -> bool:
    """Record the options of a kill, or drop them if they have no meaning; return whether the grace period shrank.

    Once a pod is terminating, every update is a kill. It always carries the effective grace period.
    """
    if not status.is_termination_requested() or status.is_terminated():
        _complete_kill(options)
        options.kill_pod_options = None
        return False
    kill = options.kill_pod_options = replace(options.kill_pod_options or KillPodOptions())
    if kill.completed_ch is not None:
        status.notify_post_terminating.append(kill.completed_ch)
    if kill.pod_status_func is not None:
        status.status_post_terminating.append(kill.pod_status_func)
    before, status.grace_period = status.grace_period, calculate_effective_grace_period(status, pod, kill)
    kill.pod_termination_grace_period_seconds_override = status.grace_period
    return before not in (0, status.grace_period)


def _complete_kill(options: UpdatePodOptions) -> None:
    """Complete the kill at once, because there is nothing to kill."""
    kill = options.kill_pod_options
    if kill is not None and kill.completed_ch is not None:
        kill.completed_ch.close()


def _notify_post_terminating_locked(status: PodSyncStatus) -> None:
    for ch in status.notify_post_terminating:
        ch.close()
    status.notify_post_terminating = []
    status.status_post_terminating = []


def _wait_for_update(ctx: golang.Context, pod_updates: golang.Channel[None]) -> bool:
    """Wait for a message; return False if the channel is closed or the kubelet stops."""
    with activity.doing(ctx, Activity.WAITS_FOR_UPDATE):
        update = golang.select(pod_updates, ctx.done()).took(pod_updates)
    return update is not None and update.ok and ctx.err() is None


def _pod_uid_and_ref_for_update(options: UpdatePodOptions) -> tuple[types.UID, klog.ObjectRef]:
    if options.running_pod is not None:
        running_pod = options.running_pod
        return running_pod.id, klog.kref(running_pod.namespace, running_pod.name)
    assert options.pod is not None
    return options.pod.metadata.uid, klog.kobj(options.pod)


def _log(level: int, msg: str, target: _Target, options: UpdatePodOptions, **kv: object) -> None:
    if klog.v(level).enabled:
        pod = klog.kref(target.namespace, target.name)
        klog.info_s_depth(1, msg, pod=pod, podUID=target.uid, updateType=str(options.update_type), **kv)


def _observe_duration(options: UpdatePodOptions, operation: str) -> None:
    if options.start_time is not None:
        metrics.POD_WORKER_DURATION.labels(operation).observe(metrics.since_in_seconds(options.start_time))


def _is_canceled(err: BaseException | None) -> bool:
    """Report whether the error is, wraps or contains a cancellation."""
    while err is not None:
        if isinstance(err, golang.Canceled):
            return True
        if isinstance(err, BaseExceptionGroup):
            return any(_is_canceled(e) for e in err.exceptions)
        err = err.__cause__
    return False


def _is_for_want_of_a_network(err: BaseException) -> bool:
    if isinstance(err, BaseExceptionGroup):
        return any(_is_for_want_of_a_network(e) for e in err.exceptions)
    return isinstance(err, NetworkNotReadyError)
