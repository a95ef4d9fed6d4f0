"""Figures about the node and its pods.

Go: pkg/kubelet/stats
"""

from kubelet.stats.cri_stats_provider import CRIStatsProvider

__all__ = ["CRIStatsProvider"]
