"""Cache the statuses of all pods as the runtime last reported them.

Go: pkg/kubelet/container/cache.go
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from kubelet.container.runtime import PodStatus
from pkg import features, golang
from pkg.apimachinery import types


class ROCache(Protocol):
    """Define read access to the cache. The returned objects are shared: callers must not modify them.

    All times are on the steady clock, so that they remain comparable when somebody sets the time of day.
    """

    def get(self, id: types.UID) -> PodStatus:
        """Return the pod's status, which is empty if the runtime does not know the pod.

        Raise the error of the pod's inspection.

        DIVERGES (fault of Go): LookupError is raised for a pod that has not been inspected since the kubelet started.
        Go: pkg/kubelet/container/cache.go, (*cache).Get: the cache returns an empty status, like that of a pod without
        containers.
        Why: after a restart, a failed pod whose containers still run would count as terminated, and lose its volumes.
        Test: cache_test.py:test_pod_that_has_not_been_inspected_yet
        """
        ...

    def get_newer_than(
        self, id: types.UID, min_time: datetime.datetime | None, ctx: golang.Context | None = None
    ) -> PodStatus:
        """Return the same as `get`, but first wait until the status is newer than min_time.

        Also raise ctx.err() if ctx is done first. Without ctx the call may block as long as the PLEG does.
        """
        ...


class Cache(ROCache, Protocol):
    """Define write access to the cache, which only the PLEG uses. All methods are thread-safe."""

    def set(self, id: types.UID, status: PodStatus | None, err: Exception | None, timestamp: datetime.datetime) -> bool:
        """Store the result of inspecting the pod at `timestamp`; report False if a newer result is stored."""
        ...

    def set_observed_time(self, id: types.UID, timestamp: datetime.datetime) -> None:
        """Record that the pod was listed at this time and had not changed."""
        ...

    def delete(self, id: types.UID) -> None:
        """Remove the pod because the runtime no longer knows it."""
        ...

    def is_filled(self) -> bool:
        """Report whether all pods, except those held back, have been inspected since the start."""
        ...

    def update_time(self, timestamp: datetime.datetime, held: Collection[types.UID] | None = None) -> None:
        """Declare that all entries, and the absence of others, are valid as of `timestamp`, except those in `held`.

        None keeps the `held` of the last call. These are the pods whose inspection is still in progress; see
        pleg/generic.py.
        """
        ...


@dataclass(slots=True)
class _Data:
    status: PodStatus | None
    err: Exception | None = None
    modified: datetime.datetime | None = None
    observed_time: datetime.datetime | None = None

    def result(self) -> PodStatus:
        if self.err is not None:
            # The same error is raised many times, and otherwise its traceback would grow each time.
            raise self.err.with_traceback(None)
        assert self.status is not None, "an entry without an error must have a status"
        return self.status


@dataclass(slots=True, eq=False)
class _SubRecord:
    """Describe a caller that waits for a status newer than `time`."""

    time: datetime.datetime
    ch: golang.Channel[_Data]


# This time is earlier than any time of a clock.
_ZERO_TIME = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class CacheImpl:
    """Implement the cache.

    A global timestamp declares all entries valid as of a time, so that the PLEG need not update the entries of
    unchanged pods. Single entries may be newer. Before the first update_time only the times of single entries count.
    """

    def __init__(self) -> None:
        # This lock guards all fields below.
        self._lock = threading.Lock()
        self._pods: dict[types.UID, _Data] = {}
        self._timestamp: datetime.datetime | None = None
        # These are the pods that _timestamp does not cover.
        self._held: frozenset[types.UID] = frozenset()
        # `_filled` tells whether `_held` was ever set.
        self._filled = False
        self._subscribers: dict[types.UID, list[_SubRecord]] = {}

    def get(self, id: types.UID) -> PodStatus:
        with self._lock:
            if id not in self._pods and (not self._filled or id in self._held):
                raise LookupError(f"pod {id} has not been inspected yet")
            data = self._get_locked(id)
        return data.result()

    def get_newer_than(
        self, id: types.UID, min_time: datetime.datetime | None, ctx: golang.Context | None = None
    ) -> PodStatus:
        record = self._subscribe(id, min_time or _ZERO_TIME)
        if ctx is None:
            data, _ = record.ch.recv()
            assert data is not None
            return data.result()
        found = golang.select(record.ch, ctx.done()).took(record.ch)
        if found is None:
            self._unsubscribe(id, record)
            raise ctx.err() or AssertionError("a context that is done must have an error")
        return found.value.result()

    def set(self, id: types.UID, status: PodStatus | None, err: Exception | None, timestamp: datetime.datetime) -> bool:
        with self._lock:
            if features.feature_gate.enabled(features.EVENTED_PLEG):
                # Two PLEGs write to the cache concurrently, each with the time at which it took the status.
                cached = self._pods.get(id)
                if cached is not None and cached.modified is not None and cached.modified > timestamp:
                    return False
            kept = golang.without_frames(err) if err is not None else None
            self._pods[id] = _Data(status, kept, timestamp, timestamp)
            self._notify_locked(id, timestamp)
            return True

    def set_observed_time(self, id: types.UID, timestamp: datetime.datetime) -> None:
        with self._lock:
            data = self._pods.get(id)
            if data is not None:
                data.observed_time = timestamp
            self._notify_locked(id, timestamp)

    def delete(self, id: types.UID) -> None:
        with self._lock:
            self._pods.pop(id, None)

    def is_filled(self) -> bool:
        with self._lock:
            return self._filled

    def update_time(self, timestamp: datetime.datetime, held: Collection[types.UID] | None = None) -> None:
        with self._lock:
            self._timestamp = timestamp
            if held is not None:
                self._held, self._filled = frozenset(held), True
            for id in self._subscribers.keys() - self._held:
                self._notify_locked(id, timestamp)

    def __len__(self) -> int:
        """Return the number of pods that the runtime knows."""
        with self._lock:
            return len(self._pods)

    def _get_locked(self, id: types.UID) -> _Data:
        return self._pods.get(id) or _Data(PodStatus(id=id))

    def _get_if_newer_than_locked(self, id: types.UID, min_time: datetime.datetime) -> _Data | None:
        if self._timestamp is not None and self._timestamp > min_time and id not in self._held:
            return self._get_locked(id)
        data = self._pods.get(id)
        if data is None:
            return None
        newest = max(data.modified or _ZERO_TIME, data.observed_time or _ZERO_TIME)
        return data if newest > min_time else None

    def _notify_locked(self, id: types.UID, timestamp: datetime.datetime) -> None:
        """Send the entry to the callers that wait for a status no newer than `timestamp`."""
        records = self._subscribers.get(id)
        if records is None:
            return
        remaining = []
        for record in records:
            if timestamp < record.time:
                remaining.append(record)
                continue
            record.ch.send(self._get_locked(id))  # The channel has room for one item and gets only this one.
        if remaining:
            self._subscribers[id] = remaining
        else:
            del self._subscribers[id]

    def _subscribe(self, id: types.UID, timestamp: datetime.datetime) -> _SubRecord:
        record = _SubRecord(timestamp, golang.Channel(1))
        with self._lock:
            data = self._get_if_newer_than_locked(id, timestamp)
            if data is not None:
                record.ch.send(data)
            else:
                self._subscribers.setdefault(id, []).append(record)
        return record

    def _unsubscribe(self, id: types.UID, record: _SubRecord) -> None:
        with self._lock:
            remaining = [r for r in self._subscribers.get(id, []) if r is not record]
            if remaining:
                self._subscribers[id] = remaining
            else:
                self._subscribers.pop(id, None)
