"""Provide statistics of the node and its pods.

The statistics come from the container runtime and from cgroups. This package itself measures how much of the node's
disk a pod uses.

Go: pkg/kubelet/stats
"""

from kubelet.stats.cadvisor_stats_provider import CadvisorStatsProvider
from kubelet.stats.cri_stats_provider import CRIStatsProvider
from kubelet.stats.host_stats_provider import HostStatsProvider, HostStatsProviderImpl
from kubelet.stats.provider import ContainerStatsProvider, Provider

__all__ = [
    "CRIStatsProvider",
    "CadvisorStatsProvider",
    "ContainerStatsProvider",
    "HostStatsProvider",
    "HostStatsProviderImpl",
    "Provider",
]
