"""Generate pod lifecycle events from the runtime's own events.

The generic PLEG still relists, but less often. If the stream of events keeps breaking, the generic PLEG takes over.

Go: pkg/kubelet/pleg/evented.go
"""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Callable

from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf import text_format

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.cri import apis as internalapi
from kubelet.pleg.generic import get_pod_ips
from kubelet.pleg.pleg import (
    CONTAINER_DIED,
    CONTAINER_REMOVED,
    CONTAINER_STARTED,
    PLEGUnhealthyError,
    PodLifecycleEvent,
    PodLifecycleEventGeneratorHandler,
    PodLifeCycleEventType,
    RelistDuration,
)
from pkg import golang, klog
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain

# `_FALL_BACK_RETRY_PERIOD` is the time, in seconds, between two attempts to fall back to the generic PLEG.
_FALL_BACK_RETRY_PERIOD = 1.0
# `GLOBAL_CACHE_UPDATE_PERIOD` is the time, in seconds, between updates of the cache's global time. A pod worker that
# waits for a newer status of an unchanged pod continues after this time at the latest.
GLOBAL_CACHE_UPDATE_PERIOD = 5.0

_EVENT_TYPES = {
    runtimeapi.CONTAINER_STOPPED_EVENT: ("Received Container Stopped Event", [CONTAINER_DIED]),
    # The kubelet needs only the pod's new status.
    runtimeapi.CONTAINER_CREATED_EVENT: ("Received Container Created Event", []),
    runtimeapi.CONTAINER_STARTED_EVENT: ("Received Container Started Event", [CONTAINER_STARTED]),
    # The container may not have been reported as dead before, and a second report does no harm.
    runtimeapi.CONTAINER_DELETED_EVENT: (
        "Received Container Deleted Event",
        [CONTAINER_DIED, CONTAINER_REMOVED],
    ),
}


class EventedPLEG:
    """Run the PLEG that listens to the runtime's events, and fall back to a generic PLEG."""

    def __init__(
        self,
        runtime: kubecontainer.Runtime,
        runtime_service: internalapi.RuntimeService,
        event_channel: golang.Channel[PodLifecycleEvent],
        cache: kubecontainer.Cache,
        generic_pleg: PodLifecycleEventGeneratorHandler,
        evented_pleg_max_stream_retries: int,
        relist_duration: RelistDuration,
        clock: clockpkg.Clock,
    ) -> None:
        """Set up the PLEG; the generic PLEG gets `relist_duration` once it has to work alone."""
        self._runtime = runtime
        self._runtime_service = runtime_service
        self._event_channel = event_channel
        self._cache = cache
        self._generic_pleg = generic_pleg
        self._max_stream_retries = evented_pleg_max_stream_retries
        self._relist_duration = relist_duration
        self._clock = clock
        # This lock guards the remaining fields.
        self._running_lock = threading.Lock()
        self._is_running = False
        self._parent_ctx = golang.background()
        self._cancel: Callable[[], None] = lambda: None

    def watch(self) -> golang.Channel[PodLifecycleEvent]:
        return self._event_channel

    def relist(self) -> None:
        self._generic_pleg.relist()

    def request_relist(self, pod_uid: types.UID) -> None:
        self._generic_pleg.request_relist(pod_uid)

    def request_reinspect(self, pod_uid: types.UID) -> None:
        self._generic_pleg.request_reinspect(pod_uid)

    def start(self, ctx: golang.Context) -> None:
        """Listen on separate threads until ctx is done, `stop` is called or the stream has broken too often."""
        with self._running_lock:
            if self._is_running:
                return
            self._is_running = True
            self._generic_pleg.evented_in_use = True
            self._parent_ctx = ctx
            own_ctx, self._cancel = golang.with_cancel(ctx)
        golang.go(self._watch_events_channel, own_ctx, name="evented-pleg")
        period = GLOBAL_CACHE_UPDATE_PERIOD
        golang.go(wait.until, self._update_global_cache, period, own_ctx, name="evented-pleg-time")

    def stop(self) -> None:
        with self._running_lock:
            if not self._is_running:
                return
            self._is_running = False
            self._generic_pleg.evented_in_use = False
            self._cancel()

    @property
    def in_use(self) -> bool:
        """Report whether the PLEG listens to events and has not fallen back."""
        with self._running_lock:
            return self._is_running

    def _update_global_cache(self) -> None:
        self._cache.update_time(self._clock.steady())

    def update(self, relist_duration: RelistDuration) -> None:
        """Change the durations of the generic PLEG."""
        self._generic_pleg.update(relist_duration)

    def healthy(self) -> None:
        """Raise PLEGUnhealthyError if the event channel is full. The generic PLEG reports on relists."""
        waiting = len(self._event_channel)
        if waiting == self._event_channel.maxsize:
            raise PLEGUnhealthyError(f"EventedPLEG: pleg event channel capacity is full with {waiting} events")
        metrics.PLEG_LAST_SEEN.set(int(self._clock.now().timestamp()))

    def _watch_events_channel(self, ctx: golang.Context) -> None:
        events: golang.Channel[runtimeapi.ContainerEventResponse] = golang.Channel(self._event_channel.maxsize)
        try:
            golang.go(self._stream, ctx, events, name="evented-pleg-stream")
        except golang.ThreadError as err:
            klog.error_s(err, "Evented PLEG: Unable to listen to container events")
            self._fall_back()
            return
        self._process_cri_events(events)

    def _stream(self, ctx: golang.Context, events: golang.Channel[runtimeapi.ContainerEventResponse]) -> None:
        """Receive events until ctx is done or the stream has broken too often; in the second case fall back."""
        attempts = 0
        while ctx.err() is None and attempts < self._max_stream_retries:
            try:
                self._runtime_service.get_container_events(ctx, events, lambda _: metrics.EVENTED_PLEG_CONN.inc())
            except Exception as err:  # Any error means that the stream of events has broken.
                if ctx.err() is not None:
                    break
                metrics.EVENTED_PLEG_CONN_ERR.inc()
                klog.v(4).info_s("Evented PLEG: Failed to get container events, retrying: ", err=err)
                # This relist finds the changes that the broken stream has missed, and updates the metrics of running
                # pods. If it fails, the generic PLEG relists soon anyway.
                with contain("Evented PLEG: Failed to relist", golang.background()):
                    self.relist()
            attempts += 1
        events.close()
        if ctx.err() is None:
            self._fall_back()

    def _fall_back(self) -> None:
        """Let the generic PLEG relist at its usual period instead of the longer one."""
        klog.v(4).info_s("Fall back to Generic PLEG relisting since Evented PLEG is not working")
        ctx = self._parent_ctx
        self.stop()
        self._generic_pleg.stop()
        self.update(self._relist_duration)

        def relists() -> bool:
            # Without a generator the kubelet does not learn of changes in pods, so this function retries until a thread
            # can start.
            with contain("Evented PLEG: Failed to start relisting, retrying", ctx):
                self._generic_pleg.start(ctx)
                return True
            return False

        try:
            wait.poll_until_context_cancel(ctx, _FALL_BACK_RETRY_PERIOD, True, relists)
        except golang.ContextError:
            return

    def _process_cri_events(self, events: golang.Channel[runtimeapi.ContainerEventResponse]) -> None:
        """Handle events until the channel is closed."""
        for event in events:
            try:
                self._process_one(event)
            except Exception as err:  # One unexpected event must not end the loop.
                klog.error_s(err, "Observed a panic", stacktrace=klog.stacktrace(err))

    def _process_one(self, event: runtimeapi.ContainerEventResponse) -> None:
        # A missing sandbox means that the runtime has deleted it. An event of the deletion follows; if that event gets
        # lost, a relist finds the change.
        if not event.pod_sandbox_status.HasField("metadata"):
            klog.error_s(
                None,
                "Evented PLEG: received ContainerEventResponse with nil PodSandboxStatus or PodSandboxStatus.Metadata",
                containerEventResponse=event,
            )
            return
        pod_id = types.UID(event.pod_sandbox_status.metadata.uid)
        status = self._runtime.generate_pod_status(event)
        klog.v(4).info_s("Evented PLEG: Generated pod status from the received event", podUID=pod_id)
        status.ips = get_pod_ips(self._cache, pod_id, status)
        self._update_running_metrics(status)
        self._update_latency_metric(event)
        if self._store(pod_id, status, event):
            self._process_cri_event(event)

    def _store(
        self, pod_id: types.UID, status: kubecontainer.PodStatus, event: runtimeapi.ContainerEventResponse
    ) -> bool:
        """Update the cache from the event; report False if the cache has a newer status."""
        if event.container_event_type == runtimeapi.CONTAINER_DELETED_EVENT:
            if any(sandbox.id == event.container_id for sandbox in status.sandbox_statuses):
                self._cache.delete(pod_id)
            return True
        taken = clockpkg.to_steady(self._clock, _from_nanoseconds(event.created_at))
        return self._cache.set(pod_id, status, None, taken)

    def _process_cri_event(self, event: runtimeapi.ContainerEventResponse) -> None:
        message, event_types = _EVENT_TYPES[event.container_event_type]
        for type in event_types:
            self._send_pod_lifecycle_event(event, type)
        if klog.v(4).enabled:
            klog.info_s(message, event=text_format.MessageToString(event, as_one_line=True))

    def _send_pod_lifecycle_event(self, event: runtimeapi.ContainerEventResponse, type: PodLifeCycleEventType) -> None:
        pod_id = types.UID(event.pod_sandbox_status.metadata.uid)
        if not self._event_channel.try_send(PodLifecycleEvent(pod_id, type, event.container_id)):
            metrics.PLEG_DISCARD_EVENTS.inc()
            klog.error_s(None, "Evented PLEG: Event channel is full, discarded pod lifecycle event")

    def _update_running_metrics(self, pod_status: kubecontainer.PodStatus) -> None:
        """Adjust the metrics by the difference between this status and the cached one."""
        try:
            cached = self._cache.get(pod_status.id)
        except Exception as err:
            # The cache returns the error of an earlier inspection, which does not tell which containers were counted.
            klog.error_s(err, "Evented PLEG: Get cache", podID=pod_status.id)
            return
        known = bool(cached.sandbox_statuses)
        self._update_running_pod_metric(cached if known else None, pod_status)
        self._update_running_container_metric(cached if known else None, pod_status)

    def _update_running_pod_metric(self, old: kubecontainer.PodStatus | None, new: kubecontainer.PodStatus) -> None:
        was_running = old is not None and get_pod_sandbox_state(old) is kubecontainer.CONTAINER_STATE_RUNNING
        is_running = get_pod_sandbox_state(new) is kubecontainer.CONTAINER_STATE_RUNNING
        metrics.RUNNING_POD_COUNT.inc(is_running - was_running)

    def _update_running_container_metric(
        self, old: kubecontainer.PodStatus | None, new: kubecontainer.PodStatus
    ) -> None:
        counts = _container_state_count(new)
        counts.subtract(_container_state_count(old) if old is not None else {})
        for state, difference in counts.items():
            metrics.RUNNING_CONTAINER_COUNT.labels(state).inc(difference)

    def _update_latency_metric(self, event: runtimeapi.ContainerEventResponse) -> None:
        # time of day: the runtime reports the creation of the event as a time of day.
        metrics.EVENTED_PLEG_CONN_LATENCY.observe(self._clock.since(_from_nanoseconds(event.created_at)))


def get_pod_sandbox_state(pod_status: kubecontainer.PodStatus) -> kubecontainer.State:
    """Return RUNNING if the pod's sandbox is listed among its containers and runs, otherwise EXITED."""
    sandbox_id = pod_status.sandbox_statuses[0].id if pod_status.sandbox_statuses else ""
    running = any(
        status.id.id == sandbox_id and status.state is kubecontainer.CONTAINER_STATE_RUNNING
        for status in pod_status.container_statuses
    )
    return kubecontainer.CONTAINER_STATE_RUNNING if running else kubecontainer.CONTAINER_STATE_EXITED


def _container_state_count(pod_status: kubecontainer.PodStatus) -> Counter[str]:
    return Counter(status.state for status in pod_status.container_statuses)


def _from_nanoseconds(nanoseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(nanoseconds / 1e9, datetime.UTC)
