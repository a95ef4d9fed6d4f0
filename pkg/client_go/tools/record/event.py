"""Record events, and deliver them to the API server and the log.

Go: k8s.io/client-go/tools/record/event.go
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import wait
from pkg.client_go.tools import reference
from pkg.client_go.tools.record import events_cache, recorder, util

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

MAX_TRIES_PER_EVENT = 12
DEFAULT_SLEEP_DURATION = 10.0
# `MAX_RETRY_TIME` is the time, in seconds, for which the recorder tries to write an event. An API server keeps an event
# for the same time.
MAX_RETRY_TIME = 3600.0
MAX_QUEUED_EVENTS = 1000
# `MAX_MESSAGE_LENGTH` is the maximum length of a message in characters. A runtime's error may quote a command of a
# megabyte.
MAX_MESSAGE_LENGTH = 16 << 10


class EventRecorder(Protocol):
    """Define how to record events; recording never blocks for long and never fails.

    All methods are thread-safe. The object is an API object or a v1.ObjectReference to one. The type is Normal or
    Warning. The reason is a short CamelCase word for programs, and the message is a sentence for users.
    """

    def event(self, obj: Any, event_type: str, reason: str, message: str, /) -> None: ...

    def eventf(self, obj: Any, event_type: str, reason: str, message_fmt: str, /, *args: Any) -> None:
        """Record an event with a message in %-format."""
        ...

    def annotated_eventf(
        self,
        obj: Any,
        annotations: Mapping[str, str],
        event_type: str,
        reason: str,
        message_fmt: str,
        /,
        *args: Any,
    ) -> None:
        """Record an event with annotations and a message in %-format."""
        ...


class EventSink(Protocol):
    """Define where events are stored; both methods return the stored event."""

    def create(self, ctx: golang.Context, event: v1.Event) -> v1.Event: ...

    def patch(self, ctx: golang.Context, event: v1.Event, data: bytes) -> v1.Event: ...


class EventSinkImpl:
    """Store events in the API server, each in its namespace.

    `events` returns the client for the events of a namespace: `client.core_v1.events`.

    Go: k8s.io/client-go/kubernetes/typed/core/v1/event_expansion.go
    """

    def __init__(self, events: Callable[[str], kubernetes.ResourceClient[v1.Event]]) -> None:
        self._events = events

    def create(self, ctx: golang.Context, event: v1.Event) -> v1.Event:
        return self._events(event.metadata.namespace).create(ctx, event)

    def patch(self, ctx: golang.Context, event: v1.Event, data: bytes) -> v1.Event:
        client = self._events(event.metadata.namespace)
        return client.patch(ctx, event.metadata.name, types.PatchType.STRATEGIC_MERGE, data)


class EventBroadcaster:
    """Deliver the events of its recorders to all sinks and watchers; use new_broadcaster to make one.

    Recording takes no longer than writing a log line. Each sink has its own thread and queue.

    DIVERGES (safer): when too many events wait for a sink, the kubelet drops the oldest event.
    Go: k8s.io/apimachinery/pkg/watch/mux.go, (*Broadcaster).distribute: the Go kubelet drops the newest event.
    Why: after an outage, current events are more useful than those from the beginning of the outage.
    Test: event_test.py:test_full_queue_forgets_the_oldest
    """

    def __init__(self, ctx: golang.Context, sleep_duration: float, clock: clock_.Clock, max_queued: int) -> None:
        self._sleep_duration = sleep_duration
        self._clock = clock
        self._max_queued = max_queued
        self._ctx, self._cancel = golang.with_cancel(ctx)
        self._lock = threading.Lock()  # The lock guards _queues and _threads.
        self._queues: list[_EventQueue] = []
        self._threads: list[golang.Thread] = []
        self._logging: klog.Verbose | None = None

    def start_recording_to_sink(self, sink: EventSink) -> None:
        """Store all events from now on in the sink."""
        correlator = events_cache.EventCorrelator(self._clock)
        refused: set[str] = set()
        self.start_event_watcher(lambda event: self._record_to_sink(sink, event, correlator, refused))

    def start_structured_logging(self, verbosity: int) -> None:
        """Log all events from now on."""
        self._logging = klog.v(verbosity)

    def start_event_watcher(self, event_handler: Callable[[v1.Event], None]) -> None:
        """Call `event_handler` in a new thread for all events from now on; it must not change them."""
        queue = _EventQueue(self._max_queued)
        with self._lock:
            self._queues.append(queue)
            self._threads.append(golang.go(self._watch, queue, event_handler, name="event-broadcaster"))

    def new_recorder(self, source: v1.EventSource) -> EventRecorder:
        return RecorderImpl(source, self, self._clock)

    def shutdown(self) -> None:
        """Stop all threads; queued events are lost."""
        self._cancel()
        with self._lock:
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.join(5)

    def action(self, event: v1.Event, depth: int) -> None:
        """Deliver an event.

        The event was recorded `depth` calls up the stack; the log names that line.
        """
        if self._logging:
            _log_event(event, depth + 1)
        with self._lock:
            queues = list(self._queues)
        for queue in queues:
            if (dropped := queue.put(event)) is not None:
                klog.error_s(
                    None,
                    "Unable to record event: too many queued events, dropped event",
                    event=klog.kobj(dropped),
                    reason=dropped.reason,
                    message=dropped.message,
                )

    def _watch(self, queue: _EventQueue, event_handler: Callable[[v1.Event], None]) -> None:
        while (event := queue.get(self._ctx)) is not None:
            try:
                event_handler(event)
            except Exception as err:
                # One event that cannot be handled must not stop the delivery of later ones.
                klog.error_s(err, "Event handler failed", event=klog.kobj(event))

    def _record_to_sink(
        self, sink: EventSink, event: v1.Event, correlator: events_cache.EventCorrelator, refused: set[str]
    ) -> None:
        """Write the event to the sink.

        `refused` holds the namespaces whose last event could not be written.
        """
        result = correlator.event_correlate(event)
        if result is None:
            return
        namespace = result.event.metadata.namespace
        # A webhook or a rate limit may refuse all events of one namespace. The events of other namespaces must not wait
        # while each of them is retried for minutes.
        max_tries = 1 if namespace in refused else MAX_TRIES_PER_EVENT
        tries, began = 0, self._clock.monotonic()
        while (failure := _record_event(self._ctx, sink, result, correlator)) is not None:
            tries += 1
            if isinstance(failure, OSError):
                # DIVERGES (safer): while the server cannot be reached, the kubelet retries an event for up to
                # MAX_RETRY_TIME.
                # Go: k8s.io/client-go/tools/record/event.go, (*eventBroadcasterImpl).recordToSink: the Go kubelet gives
                # up after 12 attempts, which take two minutes.
                # Why: the events of an outage would be lost. The time is limited because a proxy may cut each
                # connection that carries one specific event, and the events behind it must not wait forever.
                # Test: event_test.py:test_unreachable_server_gets_them_all_later,
                # event_test.py:test_event_that_cuts_each_connection_is_given_up_after_an_hour
                is_over = self._clock.monotonic() - began > MAX_RETRY_TIME
            else:
                is_over = tries >= max_tries
            if is_over:
                refused.add(namespace)
                klog.error_s(None, "Unable to write event (retry limit exceeded!)", event=klog.kobj(result.event))
                return
            # The random delay keeps clients that lost the same server from returning at the same time.
            delay = self._sleep_duration * (random.random() if tries == 1 else 1)
            if wait.sleep(self._ctx, delay, self._clock):
                klog.error_s(None, "Unable to write event (broadcaster is shut down)", event=klog.kobj(result.event))
                return
        refused.discard(namespace)


def new_broadcaster(
    sleep_duration: float = DEFAULT_SLEEP_DURATION,
    clock: clock_.Clock | None = None,
    max_queued: int = MAX_QUEUED_EVENTS,
    ctx: golang.Context | None = None,
) -> EventBroadcaster:
    """Return a broadcaster that runs until ctx ends.

    It waits `sleep_duration` seconds between attempts to write an event.
    """
    return EventBroadcaster(ctx or golang.background(), sleep_duration, clock or clock_.RealClock(), max_queued)


class _EventQueue:
    """Hold up to `size` events; a new event replaces the oldest one."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()  # The lock guards _events.
        self._events: deque[v1.Event] = deque()
        self._size = size
        self._wake: golang.Channel[None] = golang.Channel(1)

    def put(self, event: v1.Event) -> v1.Event | None:
        """Add an event, and return the event that it replaced, or None."""
        with self._lock:
            dropped = self._events.popleft() if len(self._events) >= self._size else None
            self._events.append(event)
        self._wake.try_send(None)
        return dropped

    def get(self, ctx: golang.Context) -> v1.Event | None:
        """Wait for an event and return it, or None once ctx is done."""
        while ctx.err() is None:
            with self._lock:
                if self._events:
                    return self._events.popleft()
            golang.select(ctx.done(), self._wake)
        return None


class RecorderImpl(recorder.BaseRecorder):
    """Implement EventRecorder.

    All methods are thread-safe.
    """

    def __init__(self, source: v1.EventSource, broadcaster: EventBroadcaster, clock: clock_.Clock) -> None:
        self._source = source
        self._broadcaster = broadcaster
        self._clock = clock

    def _generate_event(
        self, obj: Any, annotations: Mapping[str, str], event_type: str, reason: str, message: str
    ) -> None:
        try:
            ref = reference.get_reference(obj)
        except ValueError as err:
            klog.error_s(
                err,
                "Could not construct reference, will not report event",
                eventType=event_type,
                reason=reason,
                message=message,
            )
            return
        if not util.validate_event_type(event_type):
            klog.error_s(None, "Unsupported event type", eventType=event_type)
            return
        self._broadcaster.action(self._make_event(ref, annotations, event_type, reason, message), 2)

    def _make_event(
        self, ref: v1.ObjectReference, annotations: Mapping[str, str], event_type: str, reason: str, message: str
    ) -> v1.Event:
        now = self._clock.now()
        return v1.Event(
            metadata=metav1.ObjectMeta(
                name=util.generate_event_name(ref.name, now),
                namespace=ref.namespace or metav1.NAMESPACE_DEFAULT,
                annotations=dict(annotations),
            ),
            involved_object=ref,
            reason=reason,
            message=message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}…",
            first_timestamp=codec.seconds(now),
            last_timestamp=codec.seconds(now),
            count=1,
            type=event_type,
            source=self._source,
            reporting_component=self._source.component,
            reporting_instance=self._source.host,
        )


def _record_event(
    ctx: golang.Context,
    sink: EventSink,
    result: events_cache.EventCorrelateResult,
    correlator: events_cache.EventCorrelator,
) -> Exception | None:
    """Try to write the event, and return the error if another attempt makes sense."""
    event = result.event
    try:
        correlator.update_state(_create_or_patch(ctx, sink, event, result.patch))
        return None
    except apierrors.StatusError as err:
        if not _is_servers_own_trouble(err):
            _log_rejection(event, err)
            return None
        failure: Exception = err
    except (UnicodeEncodeError, TypeError) as err:
        # An event that cannot be encoded now can never be encoded. Go: rest.RequestConstructionError
        klog.error_s(err, "Unable to construct event (will not retry!)", event=klog.kobj(event))
        return None
    except Exception as err:  # Anything may keep the client from getting a response.
        failure = err
    if ctx.err() is None:
        klog.error_s(failure, "Unable to write event (may retry after sleeping)", event=klog.kobj(event))
    return failure


def _create_or_patch(ctx: golang.Context, sink: EventSink, event: v1.Event, patch: bytes) -> v1.Event:
    if event.count > 1:
        try:
            return sink.patch(ctx, event, patch)
        except apierrors.StatusError as err:
            if not apierrors.is_not_found(err):
                raise
    # Events expire after an hour, so the event that a patch would count up may no longer exist.
    event.metadata.resource_version = ""
    return sink.create(ctx, event)


def _is_servers_own_trouble(err: apierrors.StatusError) -> bool:
    """Report whether the server had a problem of its own, so that a retry makes sense.

    DIVERGES (safer): the kubelet retries an event after a response that reports overload or an internal error.
    Go: k8s.io/client-go/tools/record/event.go, recordEvent: every response counts as a rejection, and the event is
    lost.
    Why: such problems are temporary.
    Test: event_test.py:test_other_failures_end_after_twelve_tries
    """
    return apierrors.is_too_many_requests(err) or err.code >= 500


def _log_rejection(event: v1.Event, err: apierrors.StatusError) -> None:
    terminating = apierrors.has_status_cause(err, v1.NAMESPACE_TERMINATING_CAUSE)
    if apierrors.is_already_exists(err) or terminating:
        klog.v(5).info_s("Server rejected event (will not retry!)", event=klog.kobj(event), err=err)
    else:
        klog.error_s(err, "Server rejected event (will not retry!)", event=klog.kobj(event))


def _log_event(event: v1.Event, depth: int) -> None:
    about = event.involved_object
    klog.info_s_depth(
        depth + 1,
        "Event occurred",
        object=klog.kref(about.namespace, about.name),
        fieldPath=about.field_path,
        kind=about.kind,
        apiVersion=about.api_version,
        type=event.type,
        reason=event.reason,
        message=event.message,
    )
