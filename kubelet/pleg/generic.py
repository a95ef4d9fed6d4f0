"""Finds out what happened to pods by listing all containers again and again.

What is gone between two lists without a trace is not noticed: the kubelet relies on dead containers staying
until garbage collection takes them, and on syncing every pod now and then anyway.

How a relist goes. One call lists all sandboxes and containers. A pod whose containers are all in the states
of the last list is done with: that is every pod of an idle node, and costs a comparison of two dicts. A pod
that changed is inspected, its status goes into the cache, and its events are sent.

Another thread inspects, one pod after the other. If a pod takes longer than `inspect_limit`, the pod is held back in
the cache, so that only its own worker waits, that thread is left to it, and the first relist after the result came
uses it.

DIVERGES (safer): a relist goes on without a pod that the runtime does not answer for within two seconds.
Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).Relist: a relist waits for all pods that have changed.
Why: one sandbox that hangs would keep all pods waiting, and the node would turn NotReady.
Test: generic_test.py:test_hanging_pod_stalls_only_itself

Go: pkg/kubelet/pleg/generic.go
"""

from __future__ import annotations

import datetime
import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.pleg.pleg import (
    CONTAINER_CHANGED,
    CONTAINER_DIED,
    CONTAINER_REMOVED,
    CONTAINER_STARTED,
    POD_SYNC,
    PLEGUnhealthyError,
    PodLifecycleEvent,
    RelistDuration,
)
from pkg import features, golang, klog
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain

# How many requests for single pods may wait.
_RELIST_REQUEST_CAPACITY = 200
# Seconds that a relist waits for one pod's inspection.
_INSPECT_LIMIT = 2.0
_ZERO_TIME = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class PLEGContainerState(enum.StrEnum):
    """A container's state, or that there is none."""

    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"
    NON_EXISTENT = "non-existent"


_STATES = {
    kubecontainer.CONTAINER_STATE_CREATED: PLEGContainerState.UNKNOWN,  # between two states that matter
    kubecontainer.CONTAINER_STATE_RUNNING: PLEGContainerState.RUNNING,
    kubecontainer.CONTAINER_STATE_EXITED: PLEGContainerState.EXITED,
    kubecontainer.CONTAINER_STATE_UNKNOWN: PLEGContainerState.UNKNOWN,
}


class _RelistRequest(NamedTuple):
    pod_uid: types.UID
    # When it was asked for. A relist of all, or of the pod, that began later has served it.
    timestamp: datetime.datetime


@dataclass(slots=True)
class _PodRecord:
    """A pod as of the last events sent for it, and as it is in the list being worked through."""

    old: kubecontainer.Pod | None = None
    current: kubecontainer.Pod | None = None


class PodRecords:
    """The records by uid."""

    def __init__(self) -> None:
        self._records: dict[types.UID, _PodRecord] = {}

    def __iter__(self) -> Iterator[types.UID]:
        """The uids as of now: records may be removed meanwhile."""
        return iter(list(self._records))

    def get_old(self, id: types.UID) -> kubecontainer.Pod | None:
        record = self._records.get(id)
        return None if record is None else record.old

    def get_current(self, id: types.UID) -> kubecontainer.Pod | None:
        record = self._records.get(id)
        return None if record is None else record.current

    def set_current(self, pods: Iterable[kubecontainer.Pod]) -> None:
        """Take over a list of all pods."""
        for record in self._records.values():
            record.current = None
        for pod in pods:
            self.set_one(pod)

    def set_one(self, pod: kubecontainer.Pod) -> None:
        """Take over one pod."""
        record = self._records.get(pod.id)
        if record is None:
            self._records[pod.id] = _PodRecord(current=pod)
        else:
            record.current = pod

    def update(self, id: types.UID, pod: kubecontainer.Pod | None) -> None:
        """The events that lead to `pod` have been sent; None if it is gone."""
        record = self._records.get(id)
        if record is None:
            return
        if pod is None:
            del self._records[id]
        else:
            record.old = pod


class _Call(NamedTuple):
    """A call of the runtime under way."""

    method: str
    subject: str
    since: datetime.datetime  # by the steady clock

    def __str__(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return f"{self.method} of {self.subject} has not returned since {since}"


class _Inspection:
    """One call of get_pod_status, whose result may come late."""

    def __init__(self, ctx: golang.Context, pod: kubecontainer.Pod, since: datetime.datetime) -> None:
        self.ctx = ctx
        self.pod = pod
        sandbox = pod.sandboxes[0].id.id if pod.sandboxes else "none"
        subject = f"pod {pod.namespace}/{pod.name} (uid {pod.id}, sandbox {sandbox})"
        self.call = _Call("GetPodStatus", subject, since)
        self.status: kubecontainer.PodStatus | None = None
        self.err: Exception | None = None
        # Closed once status or err is set.
        self.done: golang.Channel[None] = golang.Channel()
        # No relist waits for it.
        self.late = False

    def run(self, runtime: kubecontainer.Runtime) -> None:
        try:
            self.status = runtime.get_pod_status(self.ctx, self.pod)
        except Exception as err:  # whatever it is, it is kept for the pod's worker
            self.err = err
        self.done.close()

    def finished(self, limit: float) -> bool:
        """Wait until it is over, but not longer than `limit` seconds."""
        return golang.select(self.done, timeout=limit).took(self.done) is not None


class RelistObserver(Protocol):
    """Is told of each relist of all pods, by the thread that relists. Go: none."""

    def relisted(self, at: float, seconds: float, failed: bool) -> None:
        """A relist that began `at`, in seconds since the epoch, took so many seconds."""
        ...


class NullRelistObserver:
    """Is told in vain."""

    def relisted(self, at: float, seconds: float, failed: bool) -> None: ...


class GenericPLEG:
    """The PLEG that only lists."""

    def __init__(
        self,
        runtime: kubecontainer.Runtime,
        event_channel: golang.Channel[PodLifecycleEvent],
        relist_duration: RelistDuration,
        cache: kubecontainer.Cache,
        clock: clockpkg.Clock,
        observer: RelistObserver | None = None,
    ) -> None:
        self._runtime = runtime
        self._observer = observer if observer is not None else NullRelistObserver()
        self._event_channel = event_channel
        self._relist_duration = relist_duration
        self._cache = cache
        self._clock = clock
        # Whether the runtime's events fill the cache as well; set by the evented PLEG.
        self.evented_in_use = False
        self.inspect_limit = _INSPECT_LIMIT
        self._relist_requests: golang.Channel[_RelistRequest] = golang.Channel(_RELIST_REQUEST_CAPACITY)

        # Guards what one relist at a time uses, from here to the blank line. Held through a relist and so
        # across calls of the runtime, on purpose: of two relists at once each would undo the other's records.
        self._relist_lock = threading.Lock()
        self.pod_records = PodRecords()
        # The inspections that take longer than a relist waits, by pod.
        self._late: dict[types.UID, _Inspection] = {}
        # The pods whose records the last relist could not bring up to date.
        self._failed: set[types.UID] = set()
        # The thread that inspects takes its work from here; None if it is busy with a late inspection.
        self._inspections: golang.Channel[_Inspection] | None = None
        # The container states that the metric has shown.
        self._states_seen: set[str] = set()

        # Guards the next two.
        self._reinspect_lock = threading.Lock()
        # Pods to inspect in the next relist in any case: inspecting them failed, or someone asks for it.
        self._pods_to_reinspect: set[types.UID] = set()
        # Pods that no relist waits for, because their last inspection was late.
        self._slow: set[types.UID] = set()

        # Written by the relisting thread alone, read by healthy(). This time and all that go into the cache
        # are of the steady clock: time of day may be set back, and then what is old would look new.
        self._relist_time: datetime.datetime | None = None
        self._call: _Call | None = None
        self._last_error: Exception | None = None

        # Guards the rest.
        self._running_lock = threading.Lock()
        self._cancel: Callable[[], None] = lambda: None
        self._ctx = golang.background()
        self._is_running = False

    def watch(self) -> golang.Channel[PodLifecycleEvent]:
        return self._event_channel

    def relist_requests(self) -> golang.Channel[_RelistRequest]:
        """The requests for single pods; to be looked at by people, and read by nobody else. Go: none"""
        return self._relist_requests

    def start(self, ctx: golang.Context) -> None:
        """Relist at once and then periodically, on its own thread, until ctx is done or `stop` is called.

        Raises golang.ThreadError.
        """
        with self._running_lock:
            if self._is_running:
                return
            self._ctx, self._cancel = golang.with_cancel(ctx)
            timer = self._clock.new_timer(0)
            try:
                golang.go(self._run, self._ctx, timer, name="pleg-relist")
            except golang.ThreadError:
                self._cancel()
                timer.stop()
                raise
            self._is_running = True

    def stop(self) -> None:
        """End the relisting. A relist under way is cancelled."""
        with self._running_lock:
            was_running, self._is_running = self._is_running, False
            self._cancel()
        if not was_running:
            self._end_inspector()

    def _run(self, ctx: golang.Context, timer: golang.Timer) -> None:
        wait.until(lambda: self._worker_loop_iteration(ctx, timer), 0.0, ctx)
        timer.stop()
        self._end_inspector()

    def _worker_loop_iteration(self, ctx: golang.Context, timer: golang.Timer) -> None:
        """Do one thing. A relist of all goes before requests for single pods, which it serves too."""
        _, _, ready = timer.channel.try_recv()
        request: _RelistRequest | None = None
        if not ready:
            selected = golang.select(ctx.done(), timer.channel, self._relist_requests)
            if selected.took(ctx.done()):
                return
            if asked := selected.took(self._relist_requests):
                request = asked.value
        if request is None:
            try:
                self.relist()
            finally:
                timer.reset(self._relist_duration.relist_period)
        elif not self._was_served(request):
            self._relist_pod(request.pod_uid)

    def _was_served(self, request: _RelistRequest) -> bool:
        """Whether the pod has been listed since it was asked for.

        DIVERGES (safer): one look at a pod serves all requests for it that were made before.
        Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).workerLoopIteration: each request has a look of its own, unless
        all pods have been listed since.
        Why: a pod of a thousand containers may make a thousand requests, and the runtime would list it for each.
        Test: generic_test.py:test_one_relist_of_a_pod_serves_all_requests_that_were_made_before
        """
        pod = self.pod_records.get_current(request.pod_uid)
        times = (self._relist_time, None if pod is None else pod.timestamp)
        return any(time is not None and request.timestamp <= time for time in times)

    def update(self, relist_duration: RelistDuration) -> None:
        self._relist_duration = relist_duration

    def healthy(self) -> None:
        """Raises PLEGUnhealthyError, with the call that hangs and since when, if none succeeded lately."""
        relist_time = self._relist_time
        if relist_time is None:
            raise PLEGUnhealthyError("pleg has yet to be successful" + self._explain())
        elapsed = self._elapsed_since(relist_time)
        # Seen from outside, time() minus this is how long the PLEG has been stuck.
        # time of day: who reads the metric compares it with theirs.
        metrics.PLEG_LAST_SEEN.set(int(self._clock.now().timestamp() - elapsed))
        threshold = self._relist_duration.relist_threshold
        if elapsed > threshold:
            raise PLEGUnhealthyError(
                f"pleg was last seen active {elapsed:.3f}s ago; threshold is {threshold:g}s" + self._explain()
            )

    def _elapsed_since(self, steady: datetime.datetime) -> float:
        return (self._clock.steady() - steady).total_seconds()

    def _explain(self) -> str:
        """What keeps the PLEG from working, as far as is known."""
        # Each is read once: the relisting thread may take it away at any time.
        if (call := self._call) is not None:
            return f"; {call}"
        return f"; the last relist failed: {err}" if (err := self._last_error) is not None else ""

    @contextmanager
    def _calling(self, call: _Call) -> Iterator[None]:
        """For the time of a call of the runtime, let healthy() name it."""
        self._call = call
        try:
            yield
        finally:
            self._call = None

    def relist(self) -> None:
        """List all pods, inspect those that changed, fill the cache and send events."""
        with self._relist_lock:
            klog.v(5).info_s("GenericPLEG: Relisting")
            if self._relist_time is not None:
                metrics.PLEG_RELIST_INTERVAL.observe(self._elapsed_since(self._relist_time))
            timestamp = self._clock.steady()
            at, began = time.time(), time.monotonic()
            with metrics.PLEG_RELIST_DURATION.time():
                self._relist_locked(timestamp)
            self._observer.relisted(at, time.monotonic() - began, self._last_error is not None)

    def _relist_locked(self, timestamp: datetime.datetime) -> None:
        try:
            with self._calling(_Call("GetPods", "all sandboxes and containers", self._clock.steady())):
                pods = self._runtime.get_pods(self._ctx, True)
        except Exception as err:  # any answer of the runtime: the next relist tries again
            if self._ctx.err() is None:
                klog.error_s(err, "GenericPLEG: Unable to retrieve pods")
            self._last_error = golang.without_frames(err)
            return
        self._last_error = None
        self._relist_time = timestamp
        with contain("GenericPLEG: Unable to count pods and containers", self._ctx):
            self._update_running_pod_and_container_metrics(pods)
        self.pod_records.set_current(pods)
        for pid in self.pod_records:
            self._reconcile_or_hold_back(pid)
        # Only now: it says that all entries are as new as this.
        self._cache.update_time(timestamp, self._late.keys() | self._failed)

    def _relist_pod(self, pod_uid: types.UID) -> None:
        """Relist one pod."""
        with self._relist_lock, metrics.PLEG_POD_RELIST_DURATION.time():
            klog.v(5).info_s("GenericPLEG: Relisting Pod", podUID=pod_uid)
            try:
                with self._calling(_Call("GetPod", f"pod {pod_uid}", self._clock.steady())):
                    pod = self._runtime.get_pod(self._ctx, pod_uid)
            except Exception as err:  # the next relist of all tries again
                if self._ctx.err() is None:
                    klog.error_s(err, "GenericPLEG: Unable to retrieve pod", podUID=pod_uid)
                return
            self.pod_records.set_one(pod)
            self._reconcile_or_hold_back(pod_uid)
            if pod_uid not in self._late and pod_uid not in self._failed and pod.timestamp is not None:
                # The global timestamp does not move, so an unchanged pod must be marked itself.
                self._cache.set_observed_time(pod_uid, pod.timestamp)

    def _reconcile_or_hold_back(self, pid: types.UID) -> None:
        """Reconcile one pod's record. Where that fails, only the pod's own worker waits, until the next relist."""
        self._failed.add(pid)
        with contain("GenericPLEG: Unable to bring the record of a pod up to date", self._ctx, podUID=pid):
            self._reconcile_pod_record(pid)
            self._failed.discard(pid)
        if pid in self._failed:
            self.request_reinspect(pid)

    def _reconcile_pod_record(self, pid: types.UID) -> None:
        """Bring the cache and the events up to the record's current pod; inspect it if it changed."""
        if pid in self._late and not self._take_late(pid):
            return
        old, pod = self.pod_records.get_old(pid), self.pod_records.get_current(pid)
        changed = _states(old) != _states(pod)
        with self._reinspect_lock:
            reinspect = pid in self._pods_to_reinspect
            self._pods_to_reinspect.discard(pid)
        if not changed and not reinspect:
            return
        if pod is None:
            klog.v(4).info_s("PLEG: Delete status for pod", podUID=pid)
            self._cache.delete(pid)
            with self._reinspect_lock:
                self._slow.discard(pid)
            self._deliver(pid, None, None)
            return
        inspection = self._inspect(pod)
        if inspection is not None:
            self._finish(inspection)

    def _inspect(self, pod: kubecontainer.Pod) -> _Inspection | None:
        """Inspect the pod on the inspecting thread; None if that takes too long to wait for."""
        inspection = _Inspection(self._ctx, pod, self._clock.steady())
        inspections = self._inspections or self._start_inspector()
        with self._calling(inspection.call):
            if inspections is None:
                inspection.run(self._runtime)
                return inspection
            inspections.send(inspection)
            if inspection.finished(0 if pod.id in self._slow else self.inspect_limit):
                return inspection
        inspection.late = True
        if inspection.finished(0):  # just now: the thread may not have seen that it is late
            return inspection
        self._late[pod.id] = inspection
        with self._reinspect_lock:
            known = pod.id in self._slow
            self._slow.add(pod.id)
        if not known:
            call = str(inspection.call)
            klog.warning_s("PLEG: Inspecting the pod takes long, going on without it", call=call)
        self._release_inspector()
        return None

    def _start_inspector(self) -> golang.Channel[_Inspection] | None:
        """None if there is no thread to be had: the relisting thread then inspects, as in Go."""
        inspections: golang.Channel[_Inspection] = golang.Channel()
        try:
            golang.go(self._run_inspections, inspections, name="pleg-inspect")
        except golang.ThreadError as err:
            klog.error_s(err, "GenericPLEG: Inspecting a pod on the thread that relists")
            return None
        self._inspections = inspections
        return inspections

    def _release_inspector(self) -> None:
        """Let the inspecting thread end after what it does now; the next inspection gets a new one."""
        if self._inspections is not None:
            self._inspections.close()
            self._inspections = None

    def _end_inspector(self) -> None:
        with self._relist_lock:
            self._release_inspector()

    def _run_inspections(self, inspections: golang.Channel[_Inspection]) -> None:
        for inspection in inspections:
            inspection.run(self._runtime)
            if inspection.late:
                self._enqueue_relist(inspection.pod.id)

    def _take_late(self, pid: types.UID) -> bool:
        """Use the result of a late inspection if it has come; returns whether it has."""
        inspection = self._late[pid]
        if not inspection.finished(0):
            return False
        del self._late[pid]
        took = self._clock.steady() - inspection.call.since
        if took.total_seconds() < self.inspect_limit:
            with self._reinspect_lock:
                self._slow.discard(pid)
        self._finish(inspection)
        return True

    def _finish(self, inspection: _Inspection) -> None:
        """Put the result into the cache and, unless it is an error, send the events.

        After an error the record stays as it is, so that the next relist finds the change again.
        """
        pod = inspection.pod
        if inspection.err is not None and inspection.ctx.err() is not None:
            self.request_reinspect(pod.id)  # it was we who broke it off
            return
        updated = self._update_cache(inspection)
        if inspection.err is not None:
            klog.v(4).info_s(
                "PLEG: Ignoring events for pod", pod=klog.kref(pod.namespace, pod.name), err=inspection.err
            )
            self.request_reinspect(pod.id)
        elif updated or not features.feature_gate.enabled(features.EVENTED_PLEG):
            self._deliver(pod.id, pod, inspection.status)

    def _update_cache(self, inspection: _Inspection) -> bool:
        """Store what inspecting gave; returns False if the cache has something newer."""
        pod, status = inspection.pod, inspection.status
        ref = klog.kref(pod.namespace, pod.name)
        timestamp = pod.timestamp or _ZERO_TIME
        if status is None:
            klog.error_s(inspection.err, "PLEG: Write status", pod=ref)
        else:
            if klog.v(6).enabled:
                klog.info_s("PLEG: Write status", pod=ref, podStatus=status)
            else:
                klog.v(4).info_s("PLEG: Write status", pod=ref)
            status.ips = get_pod_ips(self._cache, pod.id, status)
            # With two writers, what counts is when the runtime took the status.
            if self.evented_in_use and status.time_stamp is not None:
                timestamp = status.time_stamp
        return self._cache.set(pod.id, status, inspection.err, timestamp)

    def _deliver(self, pid: types.UID, pod: kubecontainer.Pod | None, status: kubecontainer.PodStatus | None) -> None:
        """Send the events that lead from the record's old pod to `pod`, at least a POD_SYNC."""
        events = compute_events(pid, self.pod_records.get_old(pid), pod)
        exit_codes = {s.id.id: s.exit_code for s in status.container_statuses} if status else {}
        for event in events or [PodLifecycleEvent(pid, POD_SYNC)]:
            # Nobody uses these.
            if event.type is CONTAINER_CHANGED:
                continue
            if not self._event_channel.try_send(event):
                metrics.PLEG_DISCARD_EVENTS.inc()
                klog.error_s(None, "Event channel is full, discard this relist() cycle event")
                if pod is not None:
                    # DIVERGES (safer): a pod whose event finds the channel full is looked at again by the next relist.
                    # Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).reconcilePodRecord: the event is lost.
                    # Why: a pod of many containers can fill the channel, and other pods would wait for their next sync,
                    # a minute or more.
                    # Test: generic_test.py:test_pod_that_was_not_told_of_is_synced_with_the_next_relist
                    self.request_reinspect(pid)
            if event.type is CONTAINER_DIED and event.data in exit_codes:
                klog.v(2).info_s(
                    "Generic (PLEG): container finished",
                    podID=pid,
                    containerID=event.data,
                    exitCode=exit_codes[event.data],
                )
        # Last: what fails before is done again by the next relist, which does not look at a pod without a record.
        self.pod_records.update(pid, pod)

    def request_reinspect(self, pod_uid: types.UID) -> None:
        with self._reinspect_lock:
            self._pods_to_reinspect.add(pod_uid)

    def request_relist(self, pod_uid: types.UID) -> None:
        if features.feature_gate.enabled(features.PLEG_ON_DEMAND_RELIST):
            self._enqueue_relist(pod_uid)

    def _enqueue_relist(self, pod_uid: types.UID) -> None:
        if not self._relist_requests.try_send(_RelistRequest(pod_uid, self._clock.steady())):
            klog.error_s(None, "Relist request channel full; dropping relist request", podUID=pod_uid)

    def _update_running_pod_and_container_metrics(self, pods: Iterable[kubecontainer.Pod]) -> None:
        running_sandboxes = 0
        container_states: Counter[str] = Counter()
        for pod in pods:
            container_states.update(container.state for container in pod.containers)
            # A pod has one running sandbox at most.
            running_sandboxes += any(
                sandbox.state is kubecontainer.CONTAINER_STATE_RUNNING for sandbox in pod.sandboxes
            )
        self._states_seen.update(container_states)
        # DIVERGES (fault of Go): kubelet_running_containers becomes 0 for a state that no container is in any more.
        # Go: pkg/kubelet/pleg/generic.go, updateRunningPodAndContainerMetrics: it keeps its last value.
        # Why: the metric would count containers that are gone.
        # Test: generic_test.py:test_running_pod_and_container_count
        for state in self._states_seen:
            metrics.RUNNING_CONTAINER_COUNT.labels(state).set(container_states[state])
        metrics.RUNNING_POD_COUNT.set(running_sandboxes)


def _states(pod: kubecontainer.Pod | None) -> dict[str, PLEGContainerState]:
    """The states of the pod's containers and sandboxes by id."""
    if pod is None:
        return {}
    states = {container.id.id: _STATES[container.state] for container in pod.containers}
    for sandbox in pod.sandboxes:
        states[sandbox.id.id] = _STATES[sandbox.state]
    return states


def compute_events(
    pid: types.UID, old_pod: kubecontainer.Pod | None, new_pod: kubecontainer.Pod | None
) -> list[PodLifecycleEvent]:
    """What must have happened between two looks at the pod."""
    old, new = _states(old_pod), _states(new_pod)
    return [
        event
        for cid in {**old, **new}
        for event in generate_events(
            pid,
            cid,
            old.get(cid, PLEGContainerState.NON_EXISTENT),
            new.get(cid, PLEGContainerState.NON_EXISTENT),
        )
    ]


def generate_events(
    pod_id: types.UID, cid: str, old_state: PLEGContainerState, new_state: PLEGContainerState
) -> list[PodLifecycleEvent]:
    """What must have happened to one container."""
    if new_state is old_state:
        return []
    klog.v(4).info_s("GenericPLEG", podUID=pod_id, containerID=cid, oldState=old_state, newState=new_state)
    match new_state:
        case PLEGContainerState.RUNNING:
            event_types = [CONTAINER_STARTED]
        case PLEGContainerState.EXITED:
            event_types = [CONTAINER_DIED]
        case PLEGContainerState.UNKNOWN:
            event_types = [CONTAINER_CHANGED]
        case PLEGContainerState.NON_EXISTENT if old_state is PLEGContainerState.EXITED:
            event_types = [CONTAINER_REMOVED]
        case PLEGContainerState.NON_EXISTENT:
            event_types = [CONTAINER_DIED, CONTAINER_REMOVED]
    return [PodLifecycleEvent(pod_id, type, cid) for type in event_types]


def get_pod_ips(cache: kubecontainer.Cache, pid: types.UID, status: kubecontainer.PodStatus) -> list[str]:
    """The status's addresses, or, when the pod has ended and lost them, those it had, for the API to show."""
    if status.ips:
        return status.ips
    if any(sandbox.state == runtimeapi.SANDBOX_READY for sandbox in status.sandbox_statuses):
        return []
    try:
        return cache.get(pid).ips
    except Exception:  # the last inspection's error, which was logged then
        return []
