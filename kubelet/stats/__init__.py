"""Figures about the node and its pods.

Go: pkg/kubelet/stats
"""

from kubelet.stats.cri_stats_provider import CRIStatsProvider
from kubelet.stats.pod_stats import pod_cpu_and_memory_stats

__all__ = ["CRIStatsProvider", "pod_cpu_and_memory_stats"]
