"""Test the measurement of pods' startup."""

import datetime

import pytest

from kubelet import metrics
from kubelet.util.pod_startup_latency_tracker import BasicPodStartupLatencyTracker
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.component_base.metrics import testing as metricstesting

UID = types.UID("u")

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def pod(running: bool, **volume: object) -> v1.Pod:
    volumes = [v1.Volume(name="v", **volume)] if volume else []  # type: ignore[arg-type]
    made = v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID("u"), name="p", creation_timestamp=START),
        spec=v1.PodSpec(volumes=volumes),
    )
    state = v1.ContainerState(running=v1.ContainerStateRunning(started_at=START)) if running else None
    made.status.container_statuses = [v1.ContainerStatus(name="c", state=state or v1.ContainerState())]
    return made


def observed(name: str) -> float:
    samples = next(iter(getattr(metrics, name).collect())).samples
    return float(sum(sample.value for sample in samples if sample.name.endswith("_sum")))


@pytest.mark.parametrize(
    ("volume", "expected_sli"),
    [
        pytest.param({"empty_dir": v1.EmptyDirVolumeSource()}, 5.0, id="pulls and init containers do not count"),
        pytest.param({"host_path": v1.HostPathVolumeSource(path="/")}, 0.0, id="no SLI with a volume from outside"),
    ],
)
def test_latency(volume: dict[str, object], expected_sli: float) -> None:
    clock = FakeClock(START)
    tracker = BasicPodStartupLatencyTracker(clock)
    before = observed("POD_START_SLI_DURATION"), observed("POD_START_TOTAL_DURATION")
    tracker.observed_pod_on_watch(pod(False, **volume), clock.now())
    tracker.record_image_started_pulling(UID)
    clock.step(1)
    tracker.record_image_started_pulling(UID)
    clock.step(1)
    tracker.record_image_finished_pulling(UID)
    clock.step(1)
    tracker.record_image_finished_pulling(UID)
    tracker.record_init_container_started(UID, clock.now())
    clock.step(2)
    tracker.record_init_container_finished(UID, clock.now())
    clock.step(5)
    tracker.observed_pod_on_watch(pod(True, **volume), clock.now())
    assert observed("POD_START_TOTAL_DURATION") == before[1], "not before the kubelet itself has said so"
    tracker.record_status_updated(pod(True, **volume))
    tracker.observed_pod_on_watch(pod(True, **volume), clock.now())
    tracker.observed_pod_on_watch(pod(True, **volume), clock.now())
    assert observed("POD_START_TOTAL_DURATION") - before[1] == pytest.approx(10.0)
    assert observed("POD_START_SLI_DURATION") - before[0] == pytest.approx(expected_sli)
    if expected_sli:
        assert metricstesting.value(metrics.FIRST_NETWORK_POD_START_SLI_DURATION) == pytest.approx(expected_sli)
