"""Combine the summary and the volume sizes for the server and the eviction manager.

Go: pkg/kubelet/server/stats/resource_analyzer.go
"""

from __future__ import annotations

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.server.stats.fs_resource_analyzer import FsResourceAnalyzer
from kubelet.server.stats.handler import Provider
from kubelet.server.stats.summary import SummaryProviderImpl
from kubelet.server.stats.volume_stat_calculator import PodVolumeStats
from pkg import golang
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.client_go.tools import record


class ResourceAnalyzer:
    """Provide the summary, and measure the sizes of pods' volumes periodically. Any thread may call this class."""

    def __init__(
        self,
        stats_provider: Provider,
        cal_volume_frequency: float,
        event_recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create the analyzer. It measures no volumes if cal_volume_frequency, in seconds, is 0 or less."""
        self._fs_analyzer = FsResourceAnalyzer(stats_provider, cal_volume_frequency, event_recorder, clock)
        self._summary_provider = SummaryProviderImpl(stats_provider)

    def start(self, ctx: golang.Context) -> None:
        """Measure volumes from now on, until ctx is done. Later calls do nothing."""
        self._fs_analyzer.start(ctx)

    def get_pod_volume_stats(self, uid: types.UID) -> PodVolumeStats | None:
        """Return the latest sizes of the pod's volumes, or None before the first measurement."""
        return self._fs_analyzer.get_pod_volume_stats(uid)

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return the whole summary. With update_stats it is measured during this call. Raise StatsError."""
        return self._summary_provider.get(ctx, update_stats)

    def get_node(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return the summary without pods. Raise StatsError."""
        return self._summary_provider.get_node(ctx, update_stats)

    def get_disks(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return the summary with only the disk statistics of pods. Raise StatsError."""
        return self._summary_provider.get_disks(ctx, update_stats)

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> statsapi.Summary:
        """Return the summary without storage and network. Raise StatsError."""
        return self._summary_provider.get_cpu_and_memory_stats(ctx)
