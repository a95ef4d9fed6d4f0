"""Test the metrics of claimed volumes.

Go: pkg/kubelet/metrics/collectors/volume_stats_test.go
"""

from __future__ import annotations

from typing import Any

import prometheus_client
import pytest

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.metrics.collectors.volume_stats import VolumeStatsCollector
from pkg import golang
from pkg.component_base import metrics

CLAIM = statsapi.PVCReference(name="testpvc", namespace="testns")


class Provider:
    """Return the given pods, or raise an error."""

    def __init__(self, *pods: statsapi.PodStats, err: Exception | None = None) -> None:
        self._pods = list(pods)
        self._err = err

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        if self._err is not None:
            raise self._err
        return self._pods


def volume(pvc_ref: statsapi.PVCReference | None, abnormal: bool | None = None, **stats: Any) -> statsapi.VolumeStats:
    health = None if abnormal is None else statsapi.VolumeHealthStats(abnormal=abnormal)
    defaults = {
        "available_bytes": 5663154176,
        "capacity_bytes": 10434699264,
        "used_bytes": 4217896960,
        "inodes_free": 655344,
        "inodes": 655360,
        "inodes_used": 16,
    }
    return statsapi.VolumeStats(name="test", pvc_ref=pvc_ref, volume_health_stats=health, **(defaults | stats))


def samples(provider: Provider) -> list[str]:
    registry = prometheus_client.CollectorRegistry()
    registry.register(VolumeStatsCollector(provider.list_pod_stats))
    return [line for line in metrics.expose(registry).decode().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("abnormal", "health"),
    [(None, []), (True, ["health_status_abnormal{} 1"]), (False, ["health_status_abnormal{} 0"])],
)
def test_volume_stats_collector(abnormal: bool | None, health: list[str]) -> None:
    """A claim of two pods is exported once, and a volume without a claim is not exported."""
    provider = Provider(
        statsapi.PodStats(volume_stats=[volume(None), volume(CLAIM, abnormal)]),
        statsapi.PodStats(volume_stats=[volume(CLAIM, abnormal, used_bytes=1)]),
    )
    expected = [
        "available_bytes{} 5.663154176e+09",
        "capacity_bytes{} 1.0434699264e+10",
        *health,
        "inodes{} 655360",
        "inodes_free{} 655344",
        "inodes_used{} 16",
        "used_bytes{} 4.21789696e+09",
    ]
    labels = '{namespace="testns",persistentvolumeclaim="testpvc"}'
    assert samples(provider) == [f"kubelet_volume_stats_{line.replace('{}', labels)}" for line in expected]


def test_help_is_upstreams() -> None:
    families = {family.name: family for family in VolumeStatsCollector(Provider().list_pod_stats).describe()}
    assert families["kubelet_volume_stats_inodes"].documentation == "[ALPHA] Maximum number of inodes in the volume"
    assert {family.type for family in families.values()} == {"gauge"}
    assert len(families) == 7


def test_nothing_without_stats() -> None:
    assert samples(Provider(err=ValueError("no runtime"))) == []
