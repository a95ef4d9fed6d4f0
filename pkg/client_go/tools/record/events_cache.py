"""Reduce the number of events by combining, counting and filtering them.

Go: k8s.io/client-go/tools/record/events_cache.go

These classes are not thread-safe; each sink's thread has its own objects.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go.tools.record import util
from pkg.client_go.util import flowcontrol

MAX_LRU_CACHE_ENTRIES = 4096
# Events that differ only in their message are combined, from the tenth event within ten minutes on.
DEFAULT_AGGREGATE_MAX_EVENTS = 10
DEFAULT_AGGREGATE_INTERVAL_IN_SECONDS = 600
# A source may record 25 events about an object, and one more every five minutes.
DEFAULT_SPAM_BURST = 25
DEFAULT_SPAM_QPS = 1 / 300

Key = tuple[str, ...]
V = TypeVar("V")


class LRU(Generic[V]):
    """Map keys to values, and drop the least recently used entry when the map is full."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key) -> V | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def add(self, key: Key, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)


def _source_and_object(event: v1.Event) -> Key:
    about = event.involved_object
    source = (event.source.component, event.source.host)
    return (*source, about.kind, about.namespace, about.name, about.uid, about.api_version, event.type)


def get_event_key(event: v1.Event) -> Key:
    """Return a key that is equal for events with the same contents about the same object."""
    return (*_source_and_object(event), event.involved_object.field_path, event.reason, _digest(event.message))


def get_spam_key(event: v1.Event) -> Key:
    """Return a key that is equal for events of one source about one object."""
    return _source_and_object(event)


def event_aggregator_by_reason_func(event: v1.Event) -> tuple[Key, str]:
    """Return the key of the group in which events are combined, and the event's own key within the group."""
    reporter = (event.reporting_component, event.reporting_instance)
    return (*_source_and_object(event), event.reason, *reporter), _digest(event.message)


def _digest(message: str) -> str:
    """Return a digest that replaces the message in caches.

    The caches remember thousands of events, and a message may have many thousand characters.
    """
    return hashlib.sha256(message.encode(errors="surrogatepass")).hexdigest()


class EventSourceObjectSpamFilter:
    """Limit how many events a source may record about one object."""

    def __init__(self, lru_cache_size: int, burst: int, qps: float, clock: clock_.Clock) -> None:
        self._cache: LRU[flowcontrol.TokenBucketRateLimiter] = LRU(lru_cache_size)
        self._burst = burst
        self._qps = qps
        self._clock = clock

    def filter(self, event: v1.Event) -> bool:
        """Report whether to drop the event."""
        key = get_spam_key(event)
        limiter = self._cache.get(key)
        if limiter is None:
            limiter = flowcontrol.TokenBucketRateLimiter(self._qps, self._burst, self._clock)
            self._cache.add(key, limiter)
        return not limiter.try_accept()


@dataclass(slots=True)
class _AggregateRecord:
    last_seen: float  # The time is that of the monotonic clock, in seconds.
    local_keys: set[str] = field(default_factory=set)


class EventAggregator:
    """Combine many similar events into one."""

    def __init__(
        self, lru_cache_size: int, max_events: int, max_interval_in_seconds: float, clock: clock_.Clock
    ) -> None:
        self._cache: LRU[_AggregateRecord] = LRU(lru_cache_size)
        self._max_events = max_events
        self._max_interval = max_interval_in_seconds
        self._clock = clock

    def event_aggregate(self, event: v1.Event) -> tuple[v1.Event, Key]:
        """Return the event to send, and the key to count it by.

        An event that represents several similar ones is a new object.
        """
        now = self._clock.monotonic()
        aggregate_key, local_key = event_aggregator_by_reason_func(event)
        record = self._cache.get(aggregate_key)
        if record is None or now - record.last_seen > self._max_interval:
            record = _AggregateRecord(now)
        record.local_keys.add(local_key)
        record.last_seen = now
        self._cache.add(aggregate_key, record)
        if len(record.local_keys) < self._max_events:
            return event, get_event_key(event)
        record.local_keys.pop()  # The set is large enough, so it must not grow further.
        return self._combined(event, self._clock.now()), aggregate_key

    def _combined(self, event: v1.Event, now: datetime) -> v1.Event:
        return v1.Event(
            metadata=metav1.ObjectMeta(
                name=util.generate_event_name(event.involved_object.name, now),
                namespace=event.metadata.namespace,
            ),
            count=1,
            first_timestamp=codec.seconds(now),
            last_timestamp=codec.seconds(now),
            involved_object=event.involved_object,
            message=f"(combined from similar events): {event.message}",
            type=event.type,
            reason=event.reason,
            source=event.source,
        )


@dataclass(frozen=True, slots=True)
class _EventLog:
    """Record what was last sent for an event."""

    count: int
    first_timestamp: datetime | None
    name: str
    resource_version: str


class EventLogger:
    """Count how often an event occurred."""

    def __init__(self, lru_cache_entries: int) -> None:
        self._cache: LRU[_EventLog] = LRU(lru_cache_entries)

    def event_observe(self, event: v1.Event, key: Key) -> tuple[v1.Event, bytes]:
        """Return the event with its current count, and a patch in case the server already has the event."""
        observed, patch = codec.deepcopy(event), b""
        last = self._cache.get(key)
        if last is not None and last.count > 0:
            observed.metadata.name = last.name
            observed.metadata.resource_version = last.resource_version
            observed.first_timestamp = last.first_timestamp
            observed.count = last.count + 1
            changed = v1.Event(count=observed.count, last_timestamp=observed.last_timestamp, message=observed.message)
            fields = ("count", "lastTimestamp", "message")
            builtins = codec.to_builtins(changed)
            patch = codec.encode_json({name: builtins[name] for name in fields if name in builtins})
        self._remember(key, observed)
        return observed, patch

    def update_state(self, event: v1.Event) -> None:
        """Continue to count from the event that the server returned."""
        self._remember(get_event_key(event), event)

    def _remember(self, key: Key, event: v1.Event) -> None:
        metadata = event.metadata
        self._cache.add(key, _EventLog(event.count, event.first_timestamp, metadata.name, metadata.resource_version))


@dataclass(frozen=True, slots=True)
class EventCorrelateResult:
    """Hold the event to send, and a patch if the server already has the event."""

    event: v1.Event
    patch: bytes = b""


class EventCorrelator:
    """Combine, count and filter events, in this order."""

    def __init__(self, clock: clock_.Clock) -> None:
        size = MAX_LRU_CACHE_ENTRIES
        self._spam_filter = EventSourceObjectSpamFilter(size, DEFAULT_SPAM_BURST, DEFAULT_SPAM_QPS, clock)
        self._aggregator = EventAggregator(
            size, DEFAULT_AGGREGATE_MAX_EVENTS, DEFAULT_AGGREGATE_INTERVAL_IN_SECONDS, clock
        )
        self._logger = EventLogger(size)

    def event_correlate(self, event: v1.Event) -> EventCorrelateResult | None:
        """Return what to send, or None to drop the event."""
        aggregate, key = self._aggregator.event_aggregate(event)
        observed, patch = self._logger.event_observe(aggregate, key)
        return None if self._spam_filter.filter(observed) else EventCorrelateResult(observed, patch)

    def update_state(self, event: v1.Event) -> None:
        self._logger.update_state(event)
