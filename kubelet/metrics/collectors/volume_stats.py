"""Export the usage of the volumes of persistent volume claims.

Go: pkg/kubelet/metrics/collectors/volume_stats.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from kubelet.cri import errors as crierror
from pkg import golang, klog
from pkg.component_base import metrics

if TYPE_CHECKING:
    from kubelet.apis.stats import v1alpha1 as statsapi

_CAPACITY_BYTES = "kubelet_volume_stats_capacity_bytes"
_AVAILABLE_BYTES = "kubelet_volume_stats_available_bytes"
_USED_BYTES = "kubelet_volume_stats_used_bytes"
_INODES = "kubelet_volume_stats_inodes"
_INODES_FREE = "kubelet_volume_stats_inodes_free"
_INODES_USED = "kubelet_volume_stats_inodes_used"
_HEALTH_STATUS_ABNORMAL = "kubelet_volume_stats_health_status_abnormal"

_HELP = {
    _CAPACITY_BYTES: "Capacity in bytes of the volume",
    _AVAILABLE_BYTES: "Number of available bytes in the volume",
    _USED_BYTES: "Number of used bytes in the volume",
    _INODES: "Maximum number of inodes in the volume",
    _INODES_FREE: "Number of free inodes in the volume",
    _INODES_USED: "Number of used inodes in the volume",
    _HEALTH_STATUS_ABNORMAL: (
        "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates "
        "volume is healthy"
    ),
}


class VolumeStatsCollector:
    """Collect the usage for prometheus_client. Each scrape requests the pods' statistics, and shows each claim once."""

    def __init__(self, pod_stats: Callable[[golang.Context], list[statsapi.PodStats]]) -> None:
        self._pod_stats = pod_stats

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return _families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            pods = self._pod_stats(golang.background())
        except (crierror.RemoteError, OSError, ValueError, LookupError) as err:
            klog.v(4).info_s("No volume metrics, because the pods' stats are not available", err=err)
            return
        claims: dict[statsapi.PVCReference, statsapi.VolumeStats] = {}
        for pod in pods:
            for volume in pod.volume_stats:
                if volume.pvc_ref is not None:
                    claims.setdefault(volume.pvc_ref, volume)
        families = _families()
        for claim, volume in claims.items():
            for name, value in _values(volume).items():
                families[name].add_metric([claim.namespace, claim.name], value)
        yield from (family for family in families.values() if family.samples)


def _families() -> dict[str, GaugeMetricFamily]:
    labels = ["namespace", "persistentvolumeclaim"]
    return {name: GaugeMetricFamily(name, metrics.annotated_help(text), labels=labels) for name, text in _HELP.items()}


def _values(volume: statsapi.VolumeStats) -> dict[str, int]:
    values = {
        _CAPACITY_BYTES: volume.capacity_bytes,
        _AVAILABLE_BYTES: volume.available_bytes,
        _USED_BYTES: volume.used_bytes,
        _INODES: volume.inodes,
        _INODES_FREE: volume.inodes_free,
        _INODES_USED: volume.inodes_used,
    }
    if volume.volume_health_stats is not None:
        values[_HEALTH_STATUS_ABNORMAL] = int(volume.volume_health_stats.abnormal)
    return {name: value for name, value in values.items() if value is not None}
