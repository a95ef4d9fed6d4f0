"""Measure the steps of the node's startup.

Go: pkg/kubelet/util/node_startup_latency_tracker.go
"""

from __future__ import annotations

import datetime
import threading
from typing import Protocol

from kubelet import metrics
from kubelet.util.boottime_util import get_boot_time
from pkg.apimachinery import clock as clockpkg


class NodeStartupLatencyTracker(Protocol):
    """Define how to record the times of the node's startup; only the first of each kind counts."""

    def record_attempt_register_node(self) -> None: ...

    def record_registered_new_node(self) -> None:
        """Record that the node was registered for the first time."""
        ...

    def record_node_ready(self) -> None: ...


class BasicNodeStartupLatencyTracker:
    """Export the durations as metrics."""

    def __init__(self, clock: clockpkg.Clock | None = None) -> None:
        self._clock = clock or clockpkg.RealClock()
        try:
            self._boot_time: datetime.datetime | None = get_boot_time()
        except OSError:
            self._boot_time = None  # Without a boot time, the metrics lack the durations since the boot.
        self._kubelet_start_time = self._clock.steady()
        # The lock guards the fields below.
        self._lock = threading.Lock()
        self._first_registration_attempt_time: datetime.datetime | None = None
        self._first_registered_new_node_time: datetime.datetime | None = None
        self._first_node_ready_time: datetime.datetime | None = None

    def record_attempt_register_node(self) -> None:
        with self._lock:
            if self._first_registration_attempt_time is None:
                self._first_registration_attempt_time = self._clock.steady()

    def record_registered_new_node(self) -> None:
        with self._lock:
            attempt = self._first_registration_attempt_time
            if attempt is None or self._first_registered_new_node_time is not None:
                return
            registered = self._first_registered_new_node_time = self._clock.steady()
        started = self._kubelet_start_time
        if self._boot_time is not None:
            metrics.NODE_STARTUP_PRE_KUBELET_DURATION.set((started - self._boot_time).total_seconds())
        metrics.NODE_STARTUP_PRE_REGISTRATION_DURATION.set((attempt - started).total_seconds())
        metrics.NODE_STARTUP_REGISTRATION_DURATION.set((registered - attempt).total_seconds())

    def record_node_ready(self) -> None:
        with self._lock:
            registered = self._first_registered_new_node_time
            if registered is None or self._first_node_ready_time is not None:
                return
            ready = self._first_node_ready_time = self._clock.steady()
        metrics.NODE_STARTUP_POST_REGISTRATION_DURATION.set((ready - registered).total_seconds())
        if self._boot_time is not None:
            metrics.NODE_STARTUP_DURATION.set((ready - self._boot_time).total_seconds())
