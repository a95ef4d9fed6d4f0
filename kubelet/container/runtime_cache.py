"""The running pods, listed no more often than needed.

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
    """The running pods as of some moment. Safe from any thread; never modify what comes out."""

    def get_pods(self, ctx: golang.Context) -> list[Pod]: ...

    def force_update_if_older(self, ctx: golang.Context, min_expected_cache_time: datetime.datetime) -> list[Pod]: ...


class PodsGetter(Protocol):
    """The part of a runtime that lists pods."""

    def get_pods(self, ctx: golang.Context, all: bool) -> list[Pod]: ...


class RuntimeCacheImpl:
    """The running pods, listed again when the last list is older than `cache_period` seconds."""

    def __init__(self, getter: PodsGetter, cache_period: float, clock: clockpkg.Clock | None = None) -> None:
        self._getter = getter
        self._cache_period = cache_period
        self._clock = clock or clockpkg.RealClock()
        # Guards _cache_time and _pods. It is held while listing, on purpose: whoever else wants the pods then
        # waits for that list instead of asking the runtime too.
        self._lock = threading.Lock()
        # Taken just before listing, so that the pods are at least as new.
        self._cache_time: datetime.datetime | None = None
        self._pods: list[Pod] = []

    def get_pods(self, ctx: golang.Context) -> list[Pod]:
        """The pods, at most cache_period old; raises what listing raises."""
        with self._lock:
            if self._age_locked() > self._cache_period:
                self._update_cache_locked(ctx)
            return self._pods

    def force_update_if_older(self, ctx: golang.Context, min_expected_cache_time: datetime.datetime) -> list[Pod]:
        """The pods, as new as that time of the steady clock; raises what listing raises."""
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
