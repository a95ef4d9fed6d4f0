"""Test the types of the summary."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from kubelet.apis.stats import v1alpha1 as stats
from pkg.apimachinery.runtime import codec

# The kubelet of Kubernetes 1.36.2 sent this response on a machine with cgroups of version 1.
RECORDED = Path(__file__).parent / "testdata/summary.json"


def test_every_field_of_upstreams_summary_has_its_place() -> None:
    recorded = RECORDED.read_bytes()
    summary = codec.decode_json(recorded, stats.Summary)
    assert json.loads(stats.encode_json(summary)) == json.loads(recorded)


def test_names_that_the_recorded_summary_does_not_have() -> None:
    abnormal = stats.VolumeHealthStats(abnormal=True)
    volume = stats.VolumeStats(
        name="v", pvc_ref=stats.PVCReference(name="c", namespace="n"), volume_health_stats=abnormal
    )
    assert json.loads(stats.encode_json(volume)) == {
        "name": "v",
        "time": None,
        "pvcRef": {"name": "c", "namespace": "n"},
        "volumeHealthStats": {"abnormal": True},
    }
    metric = stats.UserDefinedMetric(name="m", type=stats.METRIC_GAUGE, value=1.5)
    container = stats.ContainerStats(
        name="c", user_defined_metrics=[metric], accelerators=[stats.AcceleratorStats(id="1", duty_cycle=3)]
    )
    shown = json.loads(stats.encode_json(container))
    assert shown["userDefinedMetrics"] == [{"name": "m", "type": "gauge", "units": "", "time": None, "value": 1.5}]
    assert shown["accelerators"][0]["dutyCycle"] == 3


def test_times_are_shown_in_full_seconds() -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
    pod = stats.PodStats(start_time=time, containers=[stats.ContainerStats(start_time=time)])
    shown = json.loads(stats.encode_json(stats.Summary(pods=[pod])))
    assert shown["pods"][0]["startTime"] == shown["pods"][0]["containers"][0]["startTime"] == "2026-01-02T03:04:05Z"
    assert pod.start_time == time
