"""Summarize what the node and its pods use, and measure the sizes of volumes in the background.

Go: pkg/kubelet/server/stats
"""

from kubelet.server.stats.fs_resource_analyzer import FsResourceAnalyzerInterface
from kubelet.server.stats.handler import Provider, create_handlers
from kubelet.server.stats.resource_analyzer import ResourceAnalyzer
from kubelet.server.stats.summary import StatsError, SummaryProvider
from kubelet.server.stats.volume_stat_calculator import PodVolumeStats

__all__ = [
    "FsResourceAnalyzerInterface",
    "PodVolumeStats",
    "Provider",
    "ResourceAnalyzer",
    "StatsError",
    "SummaryProvider",
    "create_handlers",
]
