"""Generate pod lifecycle events by listing all sandboxes and containers periodically.

The PLEG does not notice a container that starts and disappears between two relists. The kubelet therefore relies on two
things: exited containers stay until garbage collection removes them, and the kubelet syncs every pod periodically.

A relist begins with one call that lists all sandboxes and containers. If all containers of a pod are in the same states
as in the previous list, the relist skips the pod. On an idle node this is true of every pod and costs one comparison of
two dicts per pod. If a pod has changed, the PLEG inspects the pod, stores its status in the cache and sends its events.

A separate thread inspects the pods one after another. If an inspection takes longer than `inspect_limit`, the relist
leaves the thread to this pod and continues. The cache then holds the pod back, so that only the pod's own worker waits,
and the first relist after the result arrives uses that result.

DIVERGES (safer): a relist continues without a pod whose inspection takes longer than two seconds.
Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).Relist: a relist waits for every pod that has changed.
Why: one sandbox that hangs would make all other pods wait, and the node would become NotReady.
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

# `_RELIST_REQUEST_CAPACITY` is the capacity of the channel of requests for single pods.
_RELIST_REQUEST_CAPACITY = 200
# `_INSPECT_LIMIT` is the time, in seconds, that a relist waits for the inspection of one pod.
_INSPECT_LIMIT = 2.0
_ZERO_TIME = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class PLEGContainerState(enum.StrEnum):
    """Represent the state of a container, or its absence."""

    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"
    NON_EXISTENT = "non-existent"


_STATES = {
    # The PLEG sends no event for the state "created".
    kubecontainer.CONTAINER_STATE_CREATED: PLEGContainerState.UNKNOWN,
    kubecontainer.CONTAINER_STATE_RUNNING: PLEGContainerState.RUNNING,
    kubecontainer.CONTAINER_STATE_EXITED: PLEGContainerState.EXITED,
    kubecontainer.CONTAINER_STATE_UNKNOWN: PLEGContainerState.UNKNOWN,
}


class _RelistRequest(NamedTuple):
    pod_uid: types.UID
    # `timestamp` is the time of the request. A later relist of all pods, or of this pod, has served the request.
    timestamp: datetime.datetime


@dataclass(slots=True)
class _PodRecord:
    """Hold a pod as of the last events sent for it, and as of the current relist."""

    old: kubecontainer.Pod | None = None
    current: kubecontainer.Pod | None = None


class PodRecords:
    """Hold the pods' records by UID."""

    def __init__(self) -> None:
        self._records: dict[types.UID, _PodRecord] = {}

    def __iter__(self) -> Iterator[types.UID]:
        """Iterate over a copy of the UIDs, so that the caller may remove records meanwhile."""
        return iter(list(self._records))

    def get_old(self, id: types.UID) -> kubecontainer.Pod | None:
        record = self._records.get(id)
        return None if record is None else record.old

    def get_current(self, id: types.UID) -> kubecontainer.Pod | None:
        record = self._records.get(id)
        return None if record is None else record.current

    def set_current(self, pods: Iterable[kubecontainer.Pod]) -> None:
        """Replace the current state of all records with a list of all pods."""
        for record in self._records.values():
            record.current = None
        for pod in pods:
            self.set_one(pod)

    def set_one(self, pod: kubecontainer.Pod) -> None:
        """Set the current state of one pod."""
        record = self._records.get(pod.id)
        if record is None:
            self._records[pod.id] = _PodRecord(current=pod)
        else:
            record.current = pod

    def update(self, id: types.UID, pod: kubecontainer.Pod | None) -> None:
        """Record that all events up to `pod` have been sent; None means that the pod no longer exists."""
        record = self._records.get(id)
        if record is None:
            return
        if pod is None:
            del self._records[id]
        else:
            record.old = pod


class _Call(NamedTuple):
    """Describe a call to the runtime that is in progress."""

    method: str
    subject: str
    since: datetime.datetime  # This time is on the steady clock.

    def __str__(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return f"{self.method} of {self.subject} has not returned since {since}"


class _Inspection:
    """Run one call of get_pod_status, whose result may arrive late."""

    def __init__(self, ctx: golang.Context, pod: kubecontainer.Pod, since: datetime.datetime) -> None:
        self.ctx = ctx
        self.pod = pod
        sandbox = pod.sandboxes[0].id.id if pod.sandboxes else "none"
        subject = f"pod {pod.namespace}/{pod.name} (uid {pod.id}, sandbox {sandbox})"
        self.call = _Call("GetPodStatus", subject, since)
        self.status: kubecontainer.PodStatus | None = None
        self.err: Exception | None = None
        # The inspecting thread closes this channel once it has set `status` or `err`.
        self.done: golang.Channel[None] = golang.Channel()
        # `late` is True once the relist has stopped waiting for this inspection.
        self.late = False

    def run(self, runtime: kubecontainer.Runtime) -> None:
        try:
            self.status = runtime.get_pod_status(self.ctx, self.pod)
        except Exception as err:  # The pod's worker receives every error through the cache.
            self.err = err
        self.done.close()

    def finished(self, limit: float) -> bool:
        """Report whether the inspection has finished, after waiting at most `limit` seconds for it."""
        return golang.select(self.done, timeout=limit).took(self.done) is not None


class RelistObserver(Protocol):
    """Define the receiver of a report on each relist of all pods. The relisting thread calls it.

    Go: none
    """

    def relisted(self, at: float, seconds: float, failed: bool) -> None:
        """Receive the start of a relist, in seconds since the epoch, and its duration in seconds."""
        ...


class NullRelistObserver:
    """Ignore all reports."""

    def relisted(self, at: float, seconds: float, failed: bool) -> None: ...


class GenericPLEG:
    """Run the PLEG that only lists, and does not listen to events of the runtime."""

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
        # `evented_in_use` tells whether the runtime's events also fill the cache. The evented PLEG sets it.
        self.evented_in_use = False
        self.inspect_limit = _INSPECT_LIMIT
        self._relist_requests: golang.Channel[_RelistRequest] = golang.Channel(_RELIST_REQUEST_CAPACITY)

        # This lock guards the fields from here to the blank line, and lets one relist run at a time. A relist holds the
        # lock during calls to the runtime because two concurrent relists would overwrite each other's records.
        self._relist_lock = threading.Lock()
        self.pod_records = PodRecords()
        # `_late` holds the inspections that have outlasted their relist, by pod.
        self._late: dict[types.UID, _Inspection] = {}
        # `_failed` holds the pods whose records the last relist failed to update.
        self._failed: set[types.UID] = set()
        # `_inspections` is the channel from which the inspecting thread takes its work; it is None while that thread is
        # busy with a late inspection, or before it starts.
        self._inspections: golang.Channel[_Inspection] | None = None
        # `_states_seen` holds the container states for which the metric has had a value.
        self._states_seen: set[str] = set()

        # This lock guards the next two fields.
        self._reinspect_lock = threading.Lock()
        # `_pods_to_reinspect` holds the pods that the next relist must inspect even if they are unchanged: their
        # inspection failed, or a caller requested it.
        self._pods_to_reinspect: set[types.UID] = set()
        # `_slow` holds the pods for which no relist waits because their last inspection was late.
        self._slow: set[types.UID] = set()

        # Only the relisting thread writes these fields; healthy() reads them. This time and all times in the cache are
        # on the steady clock. If they were times of day and somebody set the clock back, old states would look new.
        self._relist_time: datetime.datetime | None = None
        self._call: _Call | None = None
        self._last_error: Exception | None = None

        # This lock guards the remaining fields.
        self._running_lock = threading.Lock()
        self._cancel: Callable[[], None] = lambda: None
        self._ctx = golang.background()
        self._is_running = False

    def watch(self) -> golang.Channel[PodLifecycleEvent]:
        return self._event_channel

    def relist_requests(self) -> golang.Channel[_RelistRequest]:
        """Return the channel of requests for single pods, for inspection only: callers must not receive from it.

        Go: none
        """
        return self._relist_requests

    def start(self, ctx: golang.Context) -> None:
        """Relist at once and then periodically, on a separate thread, until ctx is done or `stop` is called.

        Raise golang.ThreadError if the thread cannot start.
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
        """Stop relisting, and cancel a relist that is in progress."""
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
        """Relist all pods if the timer has fired, otherwise serve one request for a single pod.

        A relist of all pods has priority over requests for single pods because it serves these requests too.
        """
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
        """Report whether the pod has been listed since the request.

        DIVERGES (safer): one relist of a pod serves all earlier requests for that pod.
        Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).workerLoopIteration: the Go kubelet relists the pod for each
        request, unless it has relisted all pods since.
        Why: a pod with a thousand containers may cause a thousand requests, and the runtime would list the pod for
        each.
        Test: generic_test.py:test_one_relist_of_a_pod_serves_all_requests_that_were_made_before
        """
        pod = self.pod_records.get_current(request.pod_uid)
        times = (self._relist_time, None if pod is None else pod.timestamp)
        return any(time is not None and request.timestamp <= time for time in times)

    def update(self, relist_duration: RelistDuration) -> None:
        self._relist_duration = relist_duration

    def healthy(self) -> None:
        """Raise PLEGUnhealthyError if no relist has succeeded within the threshold.

        The message names the runtime call that hangs and the time when it began, or the error of the last relist.
        """
        relist_time = self._relist_time
        if relist_time is None:
            raise PLEGUnhealthyError("pleg has yet to be successful" + self._explain())
        elapsed = self._elapsed_since(relist_time)
        # The metric lets an operator compute how long the PLEG has been stuck: the current time minus this value.
        # time of day: readers of the metric compare it with their own clocks.
        metrics.PLEG_LAST_SEEN.set(int(self._clock.now().timestamp() - elapsed))
        threshold = self._relist_duration.relist_threshold
        if elapsed > threshold:
            raise PLEGUnhealthyError(
                f"pleg was last seen active {elapsed:.3f}s ago; threshold is {threshold:g}s" + self._explain()
            )

    def _elapsed_since(self, steady: datetime.datetime) -> float:
        return (self._clock.steady() - steady).total_seconds()

    def _explain(self) -> str:
        """Return the reason why the PLEG does not work, or an empty string if it is unknown."""
        # This method reads each field once because the relisting thread may reset it at any time.
        if (call := self._call) is not None:
            return f"; {call}"
        return f"; the last relist failed: {err}" if (err := self._last_error) is not None else ""

    @contextmanager
    def _calling(self, call: _Call) -> Iterator[None]:
        """Record a call to the runtime while it runs, so that healthy() can name it."""
        self._call = call
        try:
            yield
        finally:
            self._call = None

    def relist(self) -> None:
        """List all pods, inspect the changed ones, update the cache and send events."""
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
        except Exception as err:  # The next relist tries again after any error of the runtime.
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
        # This call must come last: it declares that all entries of the cache are at least as new as `timestamp`.
        self._cache.update_time(timestamp, self._late.keys() | self._failed)

    def _relist_pod(self, pod_uid: types.UID) -> None:
        """Relist one pod."""
        with self._relist_lock, metrics.PLEG_POD_RELIST_DURATION.time():
            klog.v(5).info_s("GenericPLEG: Relisting Pod", podUID=pod_uid)
            try:
                with self._calling(_Call("GetPod", f"pod {pod_uid}", self._clock.steady())):
                    pod = self._runtime.get_pod(self._ctx, pod_uid)
            except Exception as err:  # The next relist of all pods tries again.
                if self._ctx.err() is None:
                    klog.error_s(err, "GenericPLEG: Unable to retrieve pod", podUID=pod_uid)
                return
            self.pod_records.set_one(pod)
            self._reconcile_or_hold_back(pod_uid)
            if pod_uid not in self._late and pod_uid not in self._failed and pod.timestamp is not None:
                # The global timestamp of the cache does not move here, so the pod needs an observed time of its own.
                self._cache.set_observed_time(pod_uid, pod.timestamp)

    def _reconcile_or_hold_back(self, pid: types.UID) -> None:
        """Reconcile one pod's record. If this fails, only the pod's own worker waits, until the next relist."""
        self._failed.add(pid)
        with contain("GenericPLEG: Unable to update the record of a pod", self._ctx, podUID=pid):
            self._reconcile_pod_record(pid)
            self._failed.discard(pid)
        if pid in self._failed:
            self.request_reinspect(pid)

    def _reconcile_pod_record(self, pid: types.UID) -> None:
        """Inspect the pod if it has changed, update the cache and send the events."""
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
        """Inspect the pod on the inspecting thread; return None if this takes longer than the limit."""
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
        # The inspection finished just now, so the inspecting thread may have missed that it is late.
        if inspection.finished(0):
            return inspection
        self._late[pod.id] = inspection
        with self._reinspect_lock:
            known = pod.id in self._slow
            self._slow.add(pod.id)
        if not known:
            call = str(inspection.call)
            klog.warning_s("PLEG: Inspecting the pod takes long, continuing without it", call=call)
        self._release_inspector()
        return None

    def _start_inspector(self) -> golang.Channel[_Inspection] | None:
        """Start the inspecting thread and return its channel, or None if no thread can start.

        Without the thread the relisting thread inspects the pods itself, as in Go.
        """
        inspections: golang.Channel[_Inspection] = golang.Channel()
        try:
            golang.go(self._run_inspections, inspections, name="pleg-inspect")
        except golang.ThreadError as err:
            klog.error_s(err, "GenericPLEG: Inspecting pods on the relisting thread")
            return None
        self._inspections = inspections
        return inspections

    def _release_inspector(self) -> None:
        """Let the inspecting thread end after its current inspection; the next inspection starts a new thread."""
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
        """Use the result of a late inspection if it has arrived; report whether it has."""
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
        """Store the result in the cache and, unless it is an error, send the events.

        After an error the record stays unchanged, so that the next relist finds the change again.
        """
        pod = inspection.pod
        if inspection.err is not None and inspection.ctx.err() is not None:
            self.request_reinspect(pod.id)  # The kubelet itself cancelled this inspection.
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
        """Store the result of an inspection; report False if the cache has a newer status."""
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
            # Both PLEGs write to the cache, so the time at which the runtime took the status decides which one is
            # newer.
            if self.evented_in_use and status.time_stamp is not None:
                timestamp = status.time_stamp
        return self._cache.set(pod.id, status, inspection.err, timestamp)

    def _deliver(self, pid: types.UID, pod: kubecontainer.Pod | None, status: kubecontainer.PodStatus | None) -> None:
        """Send the events that lead from the record's old pod to `pod`, or a POD_SYNC if there are none."""
        events = compute_events(pid, self.pod_records.get_old(pid), pod)
        exit_codes = {s.id.id: s.exit_code for s in status.container_statuses} if status else {}
        for event in events or [PodLifecycleEvent(pid, POD_SYNC)]:
            # No receiver uses these events.
            if event.type is CONTAINER_CHANGED:
                continue
            if not self._event_channel.try_send(event):
                metrics.PLEG_DISCARD_EVENTS.inc()
                klog.error_s(None, "Event channel is full, discard this relist() cycle event")
                if pod is not None:
                    # DIVERGES (safer): the next relist inspects a pod again if the channel was too full for its event.
                    # Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).reconcilePodRecord: the Go kubelet loses the
                    # event.
                    # Why: a pod with many containers can fill the channel, and other pods would wait a minute or more
                    # for their next sync.
                    # Test: generic_test.py:test_pod_that_was_not_told_of_is_synced_with_the_next_relist
                    self.request_reinspect(pid)
            if event.type is CONTAINER_DIED and event.data in exit_codes:
                klog.v(2).info_s(
                    "Generic (PLEG): container finished",
                    podID=pid,
                    containerID=event.data,
                    exitCode=exit_codes[event.data],
                )
        # This step must come last. If an earlier step fails, the next relist repeats it, and a relist skips pods
        # without a record.
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
            # A pod has at most one running sandbox.
            running_sandboxes += any(
                sandbox.state is kubecontainer.CONTAINER_STATE_RUNNING for sandbox in pod.sandboxes
            )
        self._states_seen.update(container_states)
        # DIVERGES (fault of Go): kubelet_running_containers becomes 0 for a state that no container has any longer.
        # Go: pkg/kubelet/pleg/generic.go, updateRunningPodAndContainerMetrics: the metric keeps its last value.
        # Why: the metric would count containers that no longer exist.
        # Test: generic_test.py:test_running_pod_and_container_count
        for state in self._states_seen:
            metrics.RUNNING_CONTAINER_COUNT.labels(state).set(container_states[state])
        metrics.RUNNING_POD_COUNT.set(running_sandboxes)


def _states(pod: kubecontainer.Pod | None) -> dict[str, PLEGContainerState]:
    """Return the states of the pod's containers and sandboxes by ID."""
    if pod is None:
        return {}
    states = {container.id.id: _STATES[container.state] for container in pod.containers}
    for sandbox in pod.sandboxes:
        states[sandbox.id.id] = _STATES[sandbox.state]
    return states


def compute_events(
    pid: types.UID, old_pod: kubecontainer.Pod | None, new_pod: kubecontainer.Pod | None
) -> list[PodLifecycleEvent]:
    """Return the events that explain the difference between two states of the pod."""
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
    """Return the events that explain a container's change from the old state to the new one."""
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
    """Return the addresses of the status, or the cached ones if a pod without a ready sandbox has lost them.

    The API shows the addresses of a pod even after the pod has ended.
    """
    if status.ips:
        return status.ips
    if any(sandbox.state == runtimeapi.SANDBOX_READY for sandbox in status.sandbox_statuses):
        return []
    try:
        return cache.get(pid).ips
    except Exception:  # This is the error of the last inspection, which was logged at that time.
        return []
