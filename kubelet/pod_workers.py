"""One worker per pod: carries the pod through setup, teardown and clean-up, one step at a time.

Go: pkg/kubelet/pod_workers.go

The life of a pod as its worker sees it, and what the queries say meanwhile:

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

    A  update_pod is told of the pod, and starts its worker.
    B  The pod may start: at once, or for a static pod when no other of its full name runs any more. From now
       on sync_pod is called again and again.
    C  The pod must end: it was deleted, evicted or killed, or its phase is terminal.
    D  sync_pod has returned, cancelled if need be. Nothing will be started any more. If sync_pod itself says
       that the pod has come to its end, C and D are one.
    E  sync_terminating_pod has succeeded, after as many attempts as it took: nothing runs any more.
    F  sync_terminated_pod has succeeded: the pod is finished, and its worker's thread ends.
    G  sync_known_pods finds the pod wanted no more, or asked for anew, and forgets it.

    *  Also true before A, once all sources and the runtime have been read: what nobody has asked for by then may go.
       The content of a pod that was neither deleted nor evicted may go only from G on.

A pod never goes back. After G the same uid may start again from the beginning.
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

# Told, when a pod is killed, to write the reason into the status.
PodStatusFunc = Callable[[v1.PodStatus], None]
# See SyncPodResult.
PostSyncFunc = Callable[[], None]
# (uid, channel) -> the channel that the worker is to read instead.
WorkerChannelFunc = Callable[[types.UID, golang.Channel[None]], golang.Channel[None]]

# By what part delays in the work queue are stretched at random, so that pods do not sync in step.
WORKER_RESYNC_INTERVAL_JITTER_FACTOR = 0.5
WORKER_BACK_OFF_PERIOD_JITTER_FACTOR = 0.5

# Seconds until a retry where the cause is expected to pass soon.
BACK_OFF_ON_TRANSIENT_ERROR_PERIOD = 1.0

# Seconds that kill_pod_now waits at least, for the calls between us and the runtime.
_MIN_KILL_TIMEOUT = 10.0


@dataclass(slots=True)
class KillPodOptions:
    """How to kill a pod."""

    # Closed once no container of the pod runs any more, or if there was nothing to kill. That can take any
    # time, but it is closed by the time could_have_running_containers says no.
    completed_ch: golang.Channel[None] | None = None
    # The node is short of something: what the pod left behind goes sooner than it otherwise would.
    evict: bool = False
    # Writes the reason into the pod's status; of several kills the last one's is used.
    pod_status_func: PodStatusFunc | None = None
    # Seconds, instead of the pod's own grace period; only counts if shorter.
    pod_termination_grace_period_seconds_override: int | None = None


@dataclass(slots=True)
class UpdatePodOptions:
    """One change to a pod, as update_pod takes it."""

    update_type: kubetypes.SyncPodType = kubetypes.SYNC_POD_SYNC
    # When the change was first seen; the duration metric counts from there.
    start_time: datetime | None = None
    # The pod as it should be. Required unless running_pod is given.
    pod: v1.Pod | None = None
    # The static pod's stand-in in the API server, if there is one.
    mirror_pod: v1.Pod | None = None
    # A pod that the runtime runs and nobody asked for. Only kills can come with one.
    running_pod: kubecontainer.Pod | None = None
    kill_pod_options: KillPodOptions | None = None


class PodWorkerState(enum.IntEnum):
    """The phase a pod is in."""

    # Its containers are to be started and kept running.
    SYNC_POD = 0
    # Nothing is started any more; containers may still run and are being stopped.
    TERMINATING_POD = 1
    # No container runs or ever will; what is left is cleaned up.
    TERMINATED_POD = 2

    def __str__(self) -> str:
        return ("sync", "terminating", "terminated")[self]


SYNC_POD = PodWorkerState.SYNC_POD
TERMINATING_POD = PodWorkerState.TERMINATING_POD
TERMINATED_POD = PodWorkerState.TERMINATED_POD


class PodStart(enum.Enum):
    """Whether a pod may start, or be ended if it runs."""

    NOW = enum.auto()
    # It has to wait for others, and is queued for a retry.
    LATER = enum.auto()
    NEVER = enum.auto()


@dataclass(frozen=True, slots=True)
class SyncPodResult:
    """What a step of a pod that should run has come to."""

    # The pod has come to its natural end.
    is_terminal: bool = False
    # Called once the worker has noted when the step ended: what it sets off will be seen as newer than the step.
    post_sync: PostSyncFunc | None = None


@dataclass(frozen=True, slots=True)
class PodWorkerSync:
    """What sync_known_pods says of one worker."""

    state: PodWorkerState
    # The pod is no longer wanted.
    orphan: bool = False
    # We have seen the pod's spec, and do not know it from the runtime alone.
    has_config: bool = False
    # The spec is that of a static pod.
    static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorkerSnapshot:
    """How one pod and its worker are at one moment, for people who look. Times are of the pod workers' clock."""

    # None for a pod that only the runtime knows.
    pod: v1.Pod | None = None
    namespace: str = ""
    name: str = ""
    phase: PodWorkerState = SYNC_POD
    # A thread works for the pod.
    has_worker: bool = False
    # An update waits for the worker.
    pending: bool = False
    finished: bool = False
    deleted: bool = False
    evicted: bool = False
    # The static pod waits for its turn, and the uid of the pod of its full name that runs, if one does.
    waits_to_start: bool = False
    runs_instead: str = ""
    # Seconds.
    grace_period: int = 0
    terminating_at: datetime | None = None
    terminated_at: datetime | None = None
    # As StepProgress has them.
    step_began: datetime | None = None
    step_ended: datetime | None = None
    next_step: datetime | None = None
    steps: int = 0
    failures: int = 0
    err: str = ""
    # What the worker is at, None without one, and what it was at when the last step failed.
    activity: Activity | None = None
    failed_at: Activity | None = None
    failed_actions: frozenset[kubecontainer.SyncAction] = frozenset()
    missing: metav1.StatusDetails | None = None


@dataclass(slots=True)
class PodWork:
    """One step for a worker."""

    work_type: PodWorkerState
    options: UpdatePodOptions


class PodSyncer(Protocol):
    """The three steps of a pod's life, and a short way out. Called for many pods at once.

    Each raises if it did not get through, and is then called again later. When ctx is cancelled (the pod
    has to end, or to end sooner) they should raise golang.Canceled as soon as they can.
    """

    def sync_pod(
        self,
        ctx: golang.Context,
        update_type: kubetypes.SyncPodType,
        pod: v1.Pod,
        mirror_pod: v1.Pod | None,
        pod_status: kubecontainer.PodStatus,
    ) -> SyncPodResult:
        """Sets the pod up and (re)starts its containers."""
        ...

    def sync_terminating_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        grace_period: int | None,
        pod_status_fn: PodStatusFunc | None,
    ) -> None:
        """Stops the pod's containers within grace_period seconds; returns only if none runs any more."""
        ...

    def sync_terminating_runtime_pod(self, ctx: golang.Context, running_pod: kubecontainer.Pod) -> None:
        """The same for a pod of which only the runtime knows."""
        ...

    def sync_terminated_pod(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        """Gives back what must be given back before the pod counts as finished on this node."""
        ...


@dataclass(slots=True)
class StepProgress:
    """The steps of one pod, as told to people. Times are of the pod workers' clock."""

    # When the step under way began; None between steps.
    began_at: datetime | None = None
    # When the last step ended, why it failed or "", and how many did so in a row. The error itself is not kept: it has
    # all that the step had at hand.
    ended_at: datetime | None = None
    err: str = ""
    failures: int = 0
    steps: int = 0
    # When the next step is due if nothing happens before.
    next_at: datetime | None = None
    # The static pod waits for its turn.
    waits_to_start: bool = False
    # What the worker is at, and what it was at when the last step failed.
    position: activity.Position = field(default_factory=activity.Position)
    failed_at: Activity | None = None
    # What of the last step the runtime did not do, and the object for want of which it failed.
    failed_actions: frozenset[kubecontainer.SyncAction] = frozenset()
    missing: metav1.StatusDetails | None = None

    def ended(self, now: datetime, err: Exception | None) -> None:
        """A step has ended. One that was cancelled has not failed: the next takes its place."""
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
    """Where one pod stands. Guarded by PodWorkers.pod_lock."""

    # Cancels the step that the worker is at, or was at last.
    cancel_fn: Callable[[], None] | None = None
    fullname: str = ""
    # An update waits for the worker or is being worked on.
    working: bool = False
    # The next update for the worker. A newer one replaces it: what counts is the latest state, not each
    # state on the way. Nobody else gets to see it before the worker takes it.
    pending_update: UpdatePodOptions | None = None
    # What the worker took last, pod and mirror pod kept from earlier updates where it brought none. Set from
    # the moment the pod may start, and then what every other part of the kubelet works towards.
    active_update: UpdatePodOptions | None = None

    # When the pod was first seen, allowed to start, asked to end, and had no running container left.
    synced_at: datetime | None = None
    started_at: datetime | None = None
    terminating_at: datetime | None = None
    terminated_at: datetime | None = None
    # Seconds; set together with terminating_at, and from then on it can only shrink.
    grace_period: int = 0
    # To be closed when the pod has terminated; empty from then on.
    notify_post_terminating: list[golang.Channel[None]] = field(default_factory=list)
    # The status functions of the kills so far; empty once the pod has terminated.
    status_post_terminating: list[PodStatusFunc] = field(default_factory=list)

    # The worker is out of sync_pod and knows of the termination: no further container will be started.
    started_terminating: bool = False
    # The API server's pod has a deletion time, or the pod is in no source any more.
    deleted: bool = False
    evicted: bool = False
    # sync_terminated_pod has succeeded and the worker's thread ends.
    finished: bool = False
    # A pod with this uid was added again after this one was killed: forget this one when it has finished.
    restart_requested: bool = False
    # The runtime has or had this pod, so it must be terminated even if we have not started it.
    observed_runtime: bool = False
    # What `snapshot` tells of the worker's steps.
    progress: StepProgress = field(default_factory=StepProgress, compare=False)

    def is_termination_requested(self) -> bool:
        return self.terminating_at is not None

    def is_terminated(self) -> bool:
        return self.terminated_at is not None

    def is_started(self) -> bool:
        return self.started_at is not None

    def work_type(self) -> PodWorkerState:
        """The phase that the next step belongs to."""
        if self.is_terminated():
            return TERMINATED_POD
        if self.is_termination_requested():
            return TERMINATING_POD
        return SYNC_POD

    def merge_last_update(self, other: UpdatePodOptions) -> None:
        """Makes `other` the active update, and keeps what it does not bring.

        The start time is not taken over: it is for measuring one update. Of kill options only what a
        repetition needs is kept.
        """
        opts = self.active_update
        if opts is None:
            opts = self.active_update = UpdatePodOptions()
        # A running pod comes without a spec, and must not displace one.
        if opts.pod is None or other.running_pod is None:
            opts.pod = other.pod
        opts.running_pod = other.running_pod
        if other.mirror_pod is not None:
            opts.mirror_pod = other.mirror_pod
        if (kill := other.kill_pod_options) is not None:
            opts.kill_pod_options = replace(kill, completed_ch=None, pod_status_func=None)


@dataclass(slots=True)
class _StartedSync:
    """What start_pod_sync hands to the worker."""

    ctx: golang.Context
    cancel: Callable[[], None]
    update: PodWork
    pod_start: PodStart = PodStart.NOW


@dataclass(slots=True)
class _SyncOutcome:
    """How one step ended."""

    # Of the steady clock.
    last_sync_time: datetime | None
    is_terminal: bool = False
    err: Exception | None = None


@dataclass(frozen=True, slots=True)
class _WorkerProgress:
    """How far a worker has come."""

    # When its last step ended, of the steady clock.
    last_sync_time: datetime | None
    # Nothing is left to be done for the pod.
    done: bool = False


@dataclass(frozen=True, slots=True)
class _Target:
    """Which pod an update is for."""

    uid: types.UID
    namespace: str
    name: str
    # There is no spec, only what the runtime says.
    is_runtime_pod: bool


class AllocatedPod(Protocol):
    """See allocation.AllocatedPod."""

    @property
    def pod(self) -> v1.Pod: ...


class AllocationManager(Protocol):
    """Knows which resources pods were given. Called with pod_lock held."""

    def update_pod_from_allocation(self, pod: v1.Pod) -> AllocatedPod:
        """The pod with what it was given in place of what it wants."""
        ...


class PodWorkers:
    """Runs one thread per pod, and knows for each pod whether it is starting, running, ending or gone.

    What the sources want comes in through update_pod, and once per housekeeping through sync_known_pods. What
    comes out are calls of the PodSyncer, never two at a time for one uid, and answers to the rest of the
    kubelet, which should ask here, and not the pod manager, whether a pod's containers may be running.

    Setup and teardown are apart: parts of the kubelet that prepare things for a pod ask
    should_pod_containers_be_terminating and stop; those that clear things away ask
    should_pod_runtime_be_removed (volumes, cgroups) or should_pod_content_be_removed (directories) and begin.
    The `is_…` queries and could_have_running_containers are for the kubelet's own loops.

    Static pods that share a full name run one after another, first come first. Thread-safe.
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
        """resync_interval, back_off_period: seconds until a pod's next sync after success, after failure."""
        # Guards the five fields below and every PodSyncStatus.
        self.pod_lock = threading.Lock()
        # mark_pods_synced has been called: every pod that should exist or that runs has been given to update_pod.
        self.pods_synced = False
        # The running workers' channels. A message says: look at pending_update. Only sent to under the lock.
        self.pod_updates: dict[types.UID, golang.Channel[None]] = {}
        self.pod_sync_statuses: dict[types.UID, PodSyncStatus] = {}
        # Which static pod of a full name runs, and which wait for their turn.
        self.started_static_pods_by_fullname: dict[str, types.UID] = {}
        self.waiting_to_start_static_pods_by_fullname: dict[str, list[types.UID]] = {}

        self.pod_syncer = pod_syncer
        self.work_queue = work_queue
        self.resync_interval = resync_interval
        self.back_off_period = back_off_period
        self.clock = clock or clocklib.RealClock()
        # Lets tests put something between update_pod and the worker.
        self.worker_channel_fn: WorkerChannelFunc | None = None
        self._recorder = recorder
        self._pod_cache = pod_cache
        self._allocation_manager = allocation_manager

    # ---- Queries ----

    def is_pod_known(self, uid: types.UID) -> bool:
        """Whether the pod was given to update_pod, and has not been forgotten since."""
        with self.pod_lock:
            return uid in self.pod_sync_statuses

    def begun_pods(self) -> Set[types.UID]:
        """The uids of the pods that a worker has begun with. It is forgotten only after it has ended the pod."""
        with self.pod_lock:
            return {
                uid
                for uid, status in self.pod_sync_statuses.items()
                if uid in self.pod_updates and (status.is_started() or status.observed_runtime)
            }

    def has_worker(self, uid: types.UID) -> bool:
        """Whether a thread works for the pod. Go needs not ask: there a pod that is known and not finished has one."""
        with self.pod_lock:
            return uid in self.pod_updates

    def snapshot(self) -> dict[types.UID, PodWorkerSnapshot]:
        """All pods that are known here, by uid, as they are now. Go: none"""
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
        """Whether the pod is known here and has no running container left.

        False again once a pod has been forgotten; good for leaving pods out of admission, no more.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return status is not None and status.is_terminated()

    def could_have_running_containers(self, uid: types.UID) -> bool:
        """True for a pod that has not terminated, and for an unknown one while sources are unread."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return not self.pods_synced if status is None else not status.is_terminated()

    def should_pod_be_finished(self, uid: types.UID) -> bool:
        """Whether sync_terminated_pod is through, or all sources are read and the pod is unknown."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return self.pods_synced if status is None else status.finished

    def is_pod_termination_requested(self, uid: types.UID) -> bool:
        """Whether the pod is known and has been asked to end. Containers may still be starting.

        Not for clean-up loops, as it is false for forgotten pods.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return status is not None and status.is_termination_requested()

    def should_pod_containers_be_terminating(self, uid: types.UID) -> bool:
        """Whether the worker has begun to end the pod, so that nothing will be started any more."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return self.pods_synced if status is None else status.started_terminating

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool:
        """Whether what running containers use, like volumes, can go."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            return self.pods_synced if status is None else status.is_terminated()

    def should_pod_content_be_removed(self, uid: types.UID) -> bool:
        """Whether all that the pod left can go: it was evicted or deleted, and has ended."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(uid)
            if status is None:
                return self.pods_synced
            # DIVERGES (fault of Go): what an evicted pod left behind stays until all its containers have ended.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).ShouldPodContentBeRemoved: it goes while the pod is being
            # ended.
            # Why: a container that is removed so early has no exit code in the pod's status.
            # Test: pod_workers_test.py:test_content_stays_until_it_is_known_how_the_containers_ended
            return (status.evicted or status.deleted) and status.is_terminated()

    def is_pod_for_mirror_pod_terminating_by_full_name(self, pod_full_name: str) -> bool:
        """Whether the static pod of this full name is ending: then its mirror pod must stay for now."""
        with self.pod_lock:
            uid = self.started_static_pods_by_fullname.get(pod_full_name)
            status = None if uid is None else self.pod_sync_statuses.get(uid)
            return status is not None and status.is_termination_requested() and not status.is_terminated()

    # ---- Updates from the kubelet ----

    def update_pod(self, ctx: golang.Context, options: UpdatePodOptions) -> None:
        """Tells the pod's worker of a change, and starts a worker if the pod has none.

        The pod is ended if it is marked for deletion, has a terminal phase, or is killed; nothing brings it
        back, further updates can only shorten its grace period. ctx is the kubelet's: a worker ends with it.
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
                # The worker sees what the pod was given, not what it wants. This may fail, and so comes before all that
                # is noted: a pod whose end is half noted is not told of it again, and its sync never cancelled; and
                # housekeeping brings no pod again that is known.
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
        # Starting a thread can take its time, and cancelling calls back: neither needs the lock.
        if new_worker is not None:
            self._start_worker(ctx, pod, target, new_worker, status)
        if cancel is not None:
            _log(3, "Cancelling current pod sync", target, options, workType=str(status.work_type()))
            cancel()

    def _start_worker(
        self, ctx: golang.Context, pod: v1.Pod, target: _Target, updates: golang.Channel[None], life: PodSyncStatus
    ) -> None:
        """Starts the pod's thread. If the machine has none, the next sync of the pod, or housekeeping, tries again."""
        try:
            golang.go(self._run_worker, ctx, target.uid, updates, life, name=f"podworker-{target.uid}")
        except Exception as err:
            # There is no thread, or no memory even for its name.
            with self.pod_lock:
                # The pending update stays. Who brings the next one finds that the pod has no worker.
                if self.pod_sync_statuses.get(target.uid) is life:
                    self._cleanup_pod_updates_locked(target.uid)
            self._sync_later(target.uid)
            klog.error_s(err, "Failed to start a pod worker", pod=klog.kobj(pod), podUID=target.uid)
            self._recorder.eventf(pod, v1.EVENT_TYPE_WARNING, events.FAILED_SYNC, "error starting pod worker: %s", err)

    def _sync_later(self, uid: types.UID) -> None:
        """Has the pod synced again as after a failed sync."""
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
            # Admission must not count it as active, hence terminated_at; but sync_terminated_pod has yet to
            # run in this process, hence not finished.
            status.terminating_at = status.terminated_at = now
            status.started_terminating = True
        return status

    def _ended_before_we_started(self, pod: v1.Pod) -> bool:
        """Whether source and runtime agree that the pod has ended, as after a restart of the kubelet."""
        if pod.status.phase not in (v1.POD_FAILED, v1.POD_SUCCEEDED):
            return False
        try:
            return is_pod_status_cache_terminal(self._pod_cache.get(pod.metadata.uid))
        except Exception as err:
            # The runtime could not be asked. Then the pod takes the long way, through termination.
            klog.v(4).info_s("No cached status for terminal pod", pod=klog.kobj(pod), err=err)
            return False

    def _is_update_ignored_locked(
        self, status: PodSyncStatus, options: UpdatePodOptions, target: _Target, first_time: bool
    ) -> bool:
        if not first_time and status.is_termination_requested() and options.update_type == kubetypes.SYNC_POD_CREATE:
            # The uid is in use again, as happens with static pods. This life must end before the next begins.
            status.restart_requested = True
            # DIVERGES (fault of Go): the ending of a pod that was removed and comes back with its uid is tried again.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).UpdatePod: the ending is not queued again. If it failed, and
            # its retry came up while no source had the pod, the retry is lost.
            # Why: the earlier pod would never end, and the new one never start.
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
            # DIVERGES (fault of Go): the kill of a pod that has finished is answered at once.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).UpdatePod: it is never answered.
            # Why: eviction and preemption would wait for it until they time out.
            # Test: pod_workers_test.py:test_a_kill_of_a_finished_pod_is_completed_at_once
            _complete_kill(options)
            _log(4, "Pod is finished processing, no further updates", target, options)
            return True
        if status.is_terminated() and target.is_runtime_pod:
            # Housekeeping looked at an older picture of the runtime; the worker is about to finish.
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
        """Marks the pod as terminating if this update is a reason to; returns whether it did."""
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
        """Makes the channel for a new worker, with a message in it; returns what the worker is to read."""
        # Room for one message, so that sending never blocks.
        updates: golang.Channel[None] = golang.Channel(1)
        updates.try_send(None)
        read = self.worker_channel_fn(uid, updates) if self.worker_channel_fn is not None else updates
        if kubetypes.is_static_pod(pod):
            waiting = self.waiting_to_start_static_pods_by_fullname.setdefault(status.fullname, [])
            if uid not in waiting:  # as is one whose thread could not be started
                waiting.append(uid)
        # Last: once it stands here, it is taken for that of a thread.
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
        """Makes the update the pending one."""
        # Latency is measured from the oldest change that the worker has not seen.
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
        """Wakes the worker; False if a message waits for it already, or if it has none."""
        updates = self.pod_updates.get(uid)
        return updates is not None and updates.try_send(None)

    # ---- May the pod start? ----

    def allow_pod_start_locked(self, pod: v1.Pod) -> PodStart:
        """Whether the pod may start. Only static pods have to wait, until no other of their full name runs."""
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
            # DIVERGES (fault of Go): a static pod that is told to end right after a restart of the kubelet is ended if
            # it may be running.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).allowPodStart: a pod that this process has not started
            # counts as ended.
            # Why: its containers would lose their volumes while they run, and the next pod of its name start beside it.
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
        """Whether the pod that waits is to be started, or to be ended because it runs already."""
        status = self.pod_sync_statuses.get(uid)
        if status is None or status.is_terminated():
            return False
        return not status.is_termination_requested() or self._may_run_locked(uid)

    def _may_run_locked(self, uid: types.UID, in_doubt: bool = True) -> bool:
        """Whether something may run of a pod that has not been started since the kubelet was."""
        try:
            return not is_pod_status_cache_terminal(self._pod_cache.get(uid))
        except Exception as err:
            # Whatever the runtime said at the last inspection: the caller knows which answer is safe.
            klog.v(4).info_s("No cached status for a pod that is to end", podUID=uid, err=err)
            return in_doubt

    def _release_static_pod_locked(self, uid: types.UID, fullname: str) -> None:
        """The static pod no longer holds its full name."""
        if self.started_static_pods_by_fullname.get(fullname) != uid:
            return
        del self.started_static_pods_by_fullname[fullname]
        # In Go the next one waits for its retry.
        for waiting_uid in self.waiting_to_start_static_pods_by_fullname.get(fullname, []):
            if self._can_still_start_locked(waiting_uid):
                self.work_queue.enqueue(waiting_uid, 0.0)
                return

    def _cleanup_unstarted_pod_locked(self, pod: v1.Pod, status: PodSyncStatus) -> None:
        """The pod was asked to end before it could start: it is finished."""
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
        # DIVERGES (fault of Go): the kill of a pod that was never started is answered.
        # Go: pkg/kubelet/pod_workers.go, (*podWorkers).cleanupUnstartedPod: it is never answered.
        # Why: eviction and preemption would wait for it until they time out.
        # Test: pod_workers_test.py:test_a_kill_of_a_pod_that_waits_to_start_is_completed
        _notify_post_terminating_locked(status)
        self._release_static_pod_locked(uid, status.fullname)

    # ---- The worker ----

    def start_pod_sync(
        self, parent_ctx: golang.Context, pod_uid: types.UID, life: PodSyncStatus
    ) -> _StartedSync | None:
        """Takes the pending update, and decides whether the pod may start if it has not yet.

        None means there is nothing to do. From here on active_update shows what the worker is at; if the pod
        may not start yet, the update becomes the pending one again, and active_update stays unset.
        """
        with self.pod_lock:
            status = self.pod_sync_statuses.get(pod_uid)
            # DIVERGES (fault of Go): the worker of a pod that was forgotten leaves a later pod with the same uid alone.
            # Go: pkg/kubelet/pod_workers.go, (*podWorkers).startPodSync: it asks only whether the uid is known.
            # Why: if it has a message left over, two workers would work on one pod at the same time.
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
                updates.try_recv()  # a message about the update just taken
            ctx, cancel = golang.with_cancel(parent_ctx)
            status.cancel_fn = cancel
            start = _StartedSync(ctx, cancel, update)
            try:
                self._admit_sync_locked(pod_uid, status, start)
            except Exception:
                # Nothing has begun: the update is there for the next try.
                status.pending_update = update.options
                cancel()
                raise
            return start

    def _admit_sync_locked(self, pod_uid: types.UID, status: PodSyncStatus, start: _StartedSync) -> None:
        options = start.update.options
        # An orphan from the runtime need not be started: its worker goes straight to ending it.
        is_orphan = options.running_pod is not None and start.update.work_type == TERMINATING_POD
        if status.is_started() or is_orphan:
            status.merge_last_update(options)
            return
        assert options.pod is not None, "update_pod lets runtime pods only be terminated"
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
        """Works off one pod's updates until it has finished, its channel is closed, or the kubelet stops.

        A worker is for one life of a uid, that is for one PodSyncStatus.

        1. Wait to start: no two pods of one uid, nor static pods of one full name, run at a time.
        2. Sync: bring the pod in the runtime to what its spec says.
        3. Terminating: stop all containers.
        4. Terminated: give back what must be given back.

        update_pod and sync_known_pods drive it. After a failure the pod goes into the work queue, and it is
        on the kubelet to call update_pod for what comes out of there; from one phase to the next the worker
        goes on by itself.
        """
        progress = _WorkerProgress(last_sync_time=None)
        ctx = activity.with_position(parent_ctx, life.progress.position)
        with activity.doing(ctx, Activity.BETWEEN_STEPS):
            while not progress.done and _wait_for_update(ctx, pod_updates):
                progress = self._work_off_update(ctx, pod_uid, life, progress.last_sync_time)

    def _work_off_update(
        self, parent_ctx: golang.Context, pod_uid: types.UID, life: PodSyncStatus, last_sync_time: datetime | None
    ) -> _WorkerProgress:
        """One step of the pod, if it may have one."""
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
        # The error has the frame of _sync, which has the outcome: together they would stay, with all that the step had
        # at hand, until garbage is collected.
        outcome.err = None
        return _WorkerProgress(outcome.last_sync_time, done)

    @contextmanager
    def _or_sync_later(self, ctx: golang.Context, pod_uid: types.UID) -> Iterator[None]:
        """Contains what fails between the steps of a pod: its worker lives on, and the pod is tried again later."""
        done = False
        try:
            with contain("Pod worker failed", ctx, podUID=pod_uid):
                yield
                done = True
        finally:
            if not done:
                self._sync_later(pod_uid)

    def _sync(self, ctx: golang.Context, update: PodWork, last_sync_time: datetime | None) -> _SyncOutcome:
        """Runs one step. What it raises becomes the outcome: whatever it is, the pod will be tried again."""
        outcome = _SyncOutcome(last_sync_time)
        try:
            pod_uid, pod_ref = _pod_uid_and_ref_for_update(update.options)
            klog.v(4).info_s("Processing pod event", pod=pod_ref, podUID=pod_uid, updateType=str(update.work_type))
            status = self._wait_for_status(ctx, update.options, last_sync_time)
        except Exception as err:  # _complete logs it, and puts the pod into the work queue.
            outcome.err = err
            return outcome
        result = SyncPodResult()
        try:
            result = self._call_syncer(ctx, update, status)
        except Exception as err:  # As above.
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
        """The pod's status as seen in the runtime after the last sync; None if there is only a running pod.

        So each step sees what the one before it did. This can take until the next relist.
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
        """Moves the pod on according to how the step ended; returns whether the worker is done."""
        options, err = update.options, outcome.err
        pod_uid, pod_ref = _pod_uid_and_ref_for_update(options)
        ref = {"pod": pod_ref, "podUID": pod_uid}
        phase_transition = False
        done = False
        if err is not None and _is_canceled(err):
            # Whoever cancelled has left an update for us.
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
        """Notes that nothing will be started any more; returns the status function of the latest kill."""
        with self.pod_lock:
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return None
            if status.is_termination_requested() and not status.started_terminating:
                klog.v(4).info_s("Pod worker has observed request to terminate", podUID=pod_uid)
                status.started_terminating = True
            return status.status_post_terminating[-1] if status.status_post_terminating else None

    def _complete_sync(self, pod_uid: types.UID) -> None:
        """sync_pod says that the pod has come to its end by itself: go on to stopping what is left."""
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
        """No container runs, and none will: tell those who wait for it, and go on to cleaning up."""
        with self.pod_lock:
            klog.v(4).info_s("Pod terminated all containers successfully", podUID=pod_uid)
            status = self.pod_sync_statuses.get(pod_uid)
            if status is None:
                return
            self._mark_terminated_locked(pod_uid, status)
            self._requeue_last_pod_update_locked(pod_uid, status)

    def _complete_terminating_runtime_pod(self, pod_uid: types.UID) -> None:
        """An orphan's containers are gone. It was in no source, so nothing of it needs remembering."""
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
        """sync_terminated_pod is through: the pod is finished and its worker ends."""
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
        """Puts the pod into the work queue for its next sync, and goes on at once if an update waits."""
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
        """Seconds until the next sync."""
        if phase_transition:
            return 0.0
        if sync_err is None:
            return wait.jitter(self.resync_interval, WORKER_RESYNC_INTERVAL_JITTER_FACTOR)
        if _is_for_want_of_a_network(sync_err):
            return wait.jitter(BACK_OFF_ON_TRANSIENT_ERROR_PERIOD, WORKER_BACK_OFF_PERIOD_JITTER_FACTOR)
        # Where the error says until when it makes no sense to try, our own back-off is not added to that.
        backoff = self.back_off_period
        backoff_at = kubecontainer.min_backoff_expiration(sync_err)
        if backoff_at is not None:
            # time of day: the runtime says when the container ended. The result is bounded below.
            backoff = (backoff_at - self.clock.now()).total_seconds()
        backoff = min(max(backoff, 0.0), self.resync_interval)
        return wait.jitter(backoff, WORKER_BACK_OFF_PERIOD_JITTER_FACTOR)

    # ---- Housekeeping ----

    def sync_known_pods(self, desired_pods: Iterable[v1.Pod]) -> dict[types.UID, PodWorkerSync]:
        """Compares the workers with the pods that should exist, and says what each worker is at.

        Pods that are in no source any more are driven to their end from here, as no update will come for
        them. Workers that are finished with such a pod, or with one asked for anew, are forgotten and left
        out of the answer; the caller then creates the pod again if it is wanted. Nobody may call update_pod
        for new pods between collecting desired_pods and this call.
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
        # DIVERGES (fault of Go): the sync of a pod that no source wants any more is cancelled.
        # Go: pkg/kubelet/pod_workers.go, (*podWorkers).SyncKnownPods: the sync goes on to its end.
        # Why: a hook that it waits for may run for ever, and the pod would never end.
        # Test: pod_workers_test.py:test_the_sync_that_runs_for_an_orphan_is_cancelled
        for cancel in cancels:
            cancel()
        return workers

    def mark_pods_synced(self) -> None:
        """From now on, what nobody has given to update_pod does not run.

        DIVERGES (fault of Go): after a start a pod that has no worker counts as possibly running, until all pods that
        only the runtime knows have been given to workers.
        Go: pkg/kubelet/pod_workers.go, (*podWorkers).SyncKnownPods: it counts as not running before that.
        Why: in between, the volumes of these pods would be unmounted while the containers run.
        Test: kubelet_pods_test.py:test_nothing_counts_as_unused_before_what_runs_is_given_to_workers
        """
        with self.pod_lock:
            self.pods_synced = True

    def remove_terminated_worker_locked(self, uid: types.UID, status: PodSyncStatus, orphaned: bool) -> bool:
        """Forgets the pod if it is finished, or never started and unwanted; returns whether it did.

        An unwanted pod that is not there yet is sent on its way.
        """
        if not status.finished:
            if not orphaned:
                klog.v(4).info_s(
                    "Pod worker has been requested for removal but is still not fully terminated", podUID=uid
                )
                return False
            status.deleted = True
            has_worker = uid in self.pod_updates  # not so if its thread could not be started
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
        """Has the worker end the pod with the spec it was given last."""
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
        # Go leaves the uid waiting until another pod of that name starts.
        waiting = self.waiting_to_start_static_pods_by_fullname.get(status.fullname, [])
        if uid in waiting:
            waiting.remove(uid)
            if not waiting:
                del self.waiting_to_start_static_pods_by_fullname[status.fullname]
        # DIVERGES (fault of Go): the kill of a pod that is forgotten before its worker began is answered.
        # Go: pkg/kubelet/pod_workers.go, (*podWorkers).removeTerminatedWorker: it is never answered.
        # Why: eviction and preemption would wait for it until they time out.
        # Test: pod_workers_test.py:test_a_kill_is_completed_if_the_pod_is_forgotten_first
        _notify_post_terminating_locked(status)
        self._release_static_pod_locked(uid, status.fullname)

    def _cleanup_pod_updates_locked(self, uid: types.UID) -> None:
        """Closes the worker's channel, and the worker ends."""
        updates = self.pod_updates.pop(uid, None)
        if updates is not None:
            updates.close()

    def _requeue_last_pod_update_locked(self, pod_uid: types.UID, status: PodSyncStatus) -> None:
        """Gives the worker its last update again, unless it has a newer one waiting or never had one.

        DIVERGES (safer): the worker is told again of an update that it has not taken yet.
        Go: pkg/kubelet/pod_workers.go, (*podWorkers).requeueLastPodUpdate: it is told once.
        Why: a worker that fails to take an update, as for want of memory, would never end its pod.
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
    """A function that kills a pod and waits until it has ended, for others to use.

    It raises TimeoutError, and records an event, when that takes longer than one and a half grace periods. It waits for
    no more than longest_wait seconds if the grace period is the pod's own, which may be of any length.
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
            raise TimeoutError(f"the pod has not ended within {longest_wait:g} seconds, and may take longer")
        recorder.event(
            pod,
            v1.EVENT_TYPE_WARNING,
            events.EXCEEDED_GRACE_PERIOD,
            "Container runtime did not kill the pod within specified grace period.",
        )
        raise TimeoutError("timeout waiting to kill pod")

    return kill_pod


def is_pod_status_cache_terminal(status: kubecontainer.PodStatus) -> bool:
    """Whether nothing of the pod runs."""
    return not any(c.state == kubecontainer.CONTAINER_STATE_RUNNING for c in status.container_statuses) and not any(
        s.state == runtimeapi.SANDBOX_READY for s in status.sandbox_statuses
    )


def calculate_effective_grace_period(status: PodSyncStatus, pod: v1.Pod, options: KillPodOptions | None) -> int:
    """The grace period in seconds, at least 1.

    The API server's value comes first, then the kill's if shorter, and if there is neither, the spec's.
    """
    overrides = [pod.metadata.deletion_grace_period_seconds]
    if options is not None:
        overrides.append(options.pod_termination_grace_period_seconds_override)
    # DIVERGES (fault of Go): a kill does not make the grace period of a pod that is deleted with 0 longer.
    # Go: pkg/kubelet/pod_workers.go, calculateEffectiveGracePeriod: 0 stands for "not set yet", too, so that the kill's
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
    """Which pod the update is for; None if it cannot be carried out."""
    running_pod = options.running_pod
    if options.pod is None:
        assert running_pod is not None, "an update names a pod or a running pod"
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
    """The pod to judge the update by.

    For a runtime pod that is the latest spec we had, which then also takes its place in the update; without
    one a stand-in made from what the runtime says.
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
    """Notes what a kill asks for, or drops it where it has no meaning; returns whether grace got shorter."""
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
    """There is nothing to kill: tells who asked for it."""
    kill = options.kill_pod_options
    if kill is not None and kill.completed_ch is not None:
        kill.completed_ch.close()


def _notify_post_terminating_locked(status: PodSyncStatus) -> None:
    for ch in status.notify_post_terminating:
        ch.close()
    status.notify_post_terminating = []
    status.status_post_terminating = []


def _wait_for_update(ctx: golang.Context, pod_updates: golang.Channel[None]) -> bool:
    """False if the channel is closed or the kubelet stops."""
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
    """Logs a line about an update."""
    if klog.v(level).enabled:
        pod = klog.kref(target.namespace, target.name)
        klog.info_s_depth(1, msg, pod=pod, podUID=target.uid, updateType=str(options.update_type), **kv)


def _observe_duration(options: UpdatePodOptions, operation: str) -> None:
    if options.start_time is not None:
        metrics.POD_WORKER_DURATION.labels(operation).observe(metrics.since_in_seconds(options.start_time))


def _is_canceled(err: BaseException | None) -> bool:
    """Whether the error is, wraps or contains a cancellation."""
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
