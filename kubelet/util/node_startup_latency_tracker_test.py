"""Test the measurement of the node's startup.

Go: pkg/kubelet/util/node_startup_latency_tracker_test.go
"""

from __future__ import annotations

import datetime

import pytest

from kubelet import metrics
from kubelet.util import node_startup_latency_tracker
from pkg.apimachinery.clock.testing import FakeClock
from pkg.component_base.metrics import testing as metricstesting

BOOT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DURATIONS = (
    metrics.NODE_STARTUP_PRE_KUBELET_DURATION,
    metrics.NODE_STARTUP_PRE_REGISTRATION_DURATION,
    metrics.NODE_STARTUP_REGISTRATION_DURATION,
    metrics.NODE_STARTUP_POST_REGISTRATION_DURATION,
    metrics.NODE_STARTUP_DURATION,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    monkeypatch.setattr(node_startup_latency_tracker, "get_boot_time", lambda: BOOT)
    for gauge in DURATIONS:
        gauge.set(0)
    return FakeClock(BOOT + datetime.timedelta(seconds=10))


def durations() -> list[float]:
    return [metricstesting.value(gauge) for gauge in DURATIONS]


def test_new_node(clock: FakeClock) -> None:
    tracker = node_startup_latency_tracker.BasicNodeStartupLatencyTracker(clock)
    for _ in range(2):  # Only the first time counts.
        clock.step(1)
        tracker.record_attempt_register_node()
    clock.step(2)
    tracker.record_registered_new_node()
    assert durations() == [10, 1, 3, 0, 0]
    for _ in range(2):
        clock.step(4)
        tracker.record_registered_new_node()
        tracker.record_node_ready()
    assert durations() == [10, 1, 3, 4, 18]


def test_node_that_was_known_before(clock: FakeClock) -> None:
    tracker = node_startup_latency_tracker.BasicNodeStartupLatencyTracker(clock)
    tracker.record_attempt_register_node()
    tracker.record_node_ready()
    assert durations() == [0, 0, 0, 0, 0]
