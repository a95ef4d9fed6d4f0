"""Measure the sizes of all pods' volumes in the background.

Go: pkg/kubelet/server/stats/fs_resource_analyzer.go
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Protocol

from kubelet.server.stats.handler import Provider
from kubelet.server.stats.volume_stat_calculator import PodVolumeStats, VolumeStatCalculator
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.tools import record

# After this time, in seconds, the next pod gets its turn even if volumes of the current pod have not responded.
TURN_TIMEOUT = 1.0


class FsResourceAnalyzerInterface(Protocol):
    """Define how callers get the sizes of pods' volumes. Any thread may call it."""

    def get_pod_volume_stats(self, uid: types.UID) -> PodVolumeStats | None:
        """Return the latest measurement, or None before the first one and after the pod is gone."""
        ...


@dataclass(slots=True)
class _Entry:
    """Hold a pod's calculator, which at most one thread uses at a time."""

    calculator: VolumeStatCalculator
    # `due` is the monotonic time of the pod's next turn, or infinity while its volumes are being measured.
    due: float


class FsResourceAnalyzer:
    """Measure every pod's volumes once in one to two periods. Any thread may call this class.

    In Go each pod has a goroutine for its measurements. Here pods take turns, so that the kubelet does not search the
    disk for all of them at once. Each turn has its own thread, and no pod waits long for another.
    """

    def __init__(
        self,
        stats_provider: Provider,
        calc_volume_period: float,
        event_recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._stats_provider = stats_provider
        self._calc_period = calc_volume_period
        self._event_recorder = event_recorder
        self._clock = clock or clocklib.RealClock()
        # The keys are pod UIDs. The measuring thread replaces the dictionary as a whole.
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()  # The lock guards _started.
        self._started = False

    def start(self, ctx: golang.Context) -> None:
        """Measure on a thread until ctx is done. Later calls do nothing."""
        with self._lock:
            started, self._started = self._started, True
        if started:
            return
        if self._calc_period <= 0:
            klog.info_s("Volume stats collection disabled")
            return
        klog.info_s("Starting FS ResourceAnalyzer")
        golang.go(self._run, ctx, name="volume-stats")

    def get_pod_volume_stats(self, uid: types.UID) -> PodVolumeStats | None:
        """Return the latest measurement, or None before the first one and after the pod is gone."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.calculator.get_latest()

    def _run(self, ctx: golang.Context) -> None:
        next_update = self._clock.monotonic()
        while ctx.err() is None:
            if self._clock.monotonic() >= next_update:
                with contain("Failed to list the pods whose volumes to measure", ctx):
                    self.update_cached_pod_volume_stats()
                next_update = self._clock.monotonic() + self._calc_period
            self._measure_due(ctx)
            next_turn = min((entry.due for entry in self._entries.values()), default=next_update)
            wait.sleep(ctx, min(next_turn, next_update) - self._clock.monotonic(), self._clock)

    def update_cached_pod_volume_stats(self) -> None:
        """Add new pods, whose turn comes immediately, and drop pods that are gone."""
        now = self._clock.monotonic()
        entries: dict[str, _Entry] = {}
        for pod in self._stats_provider.get_pods():
            known = self._entries.get(pod.metadata.uid)
            entries[pod.metadata.uid] = known or _Entry(self._new_calculator(pod), now)
        self._entries = entries

    def _new_calculator(self, pod: v1.Pod) -> VolumeStatCalculator:
        return VolumeStatCalculator(self._stats_provider, pod, self._event_recorder, self._clock)

    def _measure_due(self, ctx: golang.Context) -> None:
        """Start the turn of each pod that is due, and wait up to TURN_TIMEOUT for its end."""
        for uid, entry in self._entries.items():
            if ctx.err() is not None:
                return
            if entry.due > self._clock.monotonic():
                continue
            entry.due = math.inf
            try:
                turn = golang.go(self._measure, uid, entry, name=f"volume-stats-{uid}")
            except golang.ThreadError as err:
                klog.error_s(err, "Could not measure the volumes of a pod, trying again in its next turn", podUID=uid)
                entry.due = self._next_turn()
            else:
                turn.join(TURN_TIMEOUT)

    def _measure(self, uid: types.UID, entry: _Entry) -> None:
        try:
            with contain("Failed to measure the volumes of a pod", golang.background(), podUID=uid):
                entry.calculator.calc_and_store_stats()
        finally:
            entry.due = self._next_turn()

    def _next_turn(self) -> float:
        return self._clock.monotonic() + wait.jitter(self._calc_period, 1.0)
