"""What the server and the eviction manager ask.

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
    """The summary, and the sizes of pods' volumes, measured every so many seconds; safe from any thread."""

    def __init__(
        self,
        stats_provider: Provider,
        cal_volume_frequency: float,
        event_recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Volumes are not measured at all with a frequency of 0 or less."""
        self._fs_analyzer = FsResourceAnalyzer(stats_provider, cal_volume_frequency, event_recorder, clock)
        self._summary_provider = SummaryProviderImpl(stats_provider)

    def start(self, ctx: golang.Context) -> None:
        """Measures from now on, until ctx is done. Later calls do nothing."""
        self._fs_analyzer.start(ctx)

    def get_pod_volume_stats(self, uid: types.UID) -> PodVolumeStats | None:
        """The newest sizes of the pod's volumes; None before the first."""
        return self._fs_analyzer.get_pod_volume_stats(uid)

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """The whole summary. With update_stats nothing in it is older than this call. Raises StatsError."""
        return self._summary_provider.get(ctx, update_stats)

    def get_node(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """The summary without pods. Raises StatsError."""
        return self._summary_provider.get_node(ctx, update_stats)

    def get_disks(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """The same, and of pods what they take of the node's disk. Raises StatsError."""
        return self._summary_provider.get_disks(ctx, update_stats)

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> statsapi.Summary:
        """The summary without storage and network. Raises StatsError."""
        return self._summary_provider.get_cpu_and_memory_stats(ctx)
