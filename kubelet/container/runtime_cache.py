"""Cache the list of running pods.

Go: pkg/kubelet/container/runtime_cache.go
"""

from __future__ import annotations

import datetime
import math
import threading
from typing import Protocol

from kubelet.container.runtime import Pod
from pkg import golang
from pkg.apimachinery import clock as clockpkg


class RuntimeCache(Protocol):
    """Define a cache of the running pods. All methods are thread-safe; callers must not modify the returned objects."""

    def get_pods(self, ctx: golang.Context) -> list[Pod]: ...

    def force_update_if_older(self, ctx: golang.Context, min_expected_cache_time: datetime.datetime) -> list[Pod]: ...


class PodsGetter(Protocol):
    """Define the part of a runtime that lists pods."""

    def get_pods(self, ctx: golang.Context, all: bool) -> list[Pod]: ...


class RuntimeCacheImpl:
    """Cache the running pods, and list them again if the last list is older than `cache_period` seconds."""

    def __init__(self, getter: PodsGetter, cache_period: float, clock: clockpkg.Clock | None = None) -> None:
        self._getter = getter
        self._cache_period = cache_period
        self._clock = clock or clockpkg.RealClock()
        # This lock guards _cache_time and _pods. A thread holds the lock while it lists the pods, so that other threads
        # wait for this list instead of calling the runtime too.
        self._lock = threading.Lock()
        # The time is taken just before the list, so that the pods are at least this new.
        self._cache_time: datetime.datetime | None = None
        self._pods: list[Pod] = []

    def get_pods(self, ctx: golang.Context) -> list[Pod]:
        """Return the pods, which are at most cache_period seconds old. Raise the errors of the runtime."""
        with self._lock:
            if self._age_locked() > self._cache_period:
                self._update_cache_locked(ctx)
            return self._pods

    def force_update_if_older(self, ctx: golang.Context, min_expected_cache_time: datetime.datetime) -> list[Pod]:
        """Return the pods, listed at or after this time of the steady clock. Raise the errors of the runtime."""
        with self._lock:
            if self._cache_time is None or self._cache_time < min_expected_cache_time:
                self._update_cache_locked(ctx)
            return self._pods

    def _age_locked(self) -> float:
        if self._cache_time is None:
            return math.inf
        return (self._clock.steady() - self._cache_time).total_seconds()

    def _update_cache_locked(self, ctx: golang.Context) -> None:
        timestamp = self._clock.steady()
        self._pods = self._getter.get_pods(ctx, False)
        self._cache_time = timestamp
