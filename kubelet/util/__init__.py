"""Provide helpers of the kubelet. Subpackages contain more helpers: format, queue, store, cache and others.

Go: pkg/kubelet/util
"""

from kubelet.util.boottime_util import (
    get_boot_time,
)
from kubelet.util.node_startup_latency_tracker import (
    BasicNodeStartupLatencyTracker,
    NodeStartupLatencyTracker,
)
from kubelet.util.pod_startup_latency_tracker import (
    BasicPodStartupLatencyTracker,
    PodStartupLatencyTracker,
    calculate_image_pulling_time,
)
from kubelet.util.util import (
    CGROUP_ROOT,
    ResourceOpts,
    create_listener,
    from_apiserver_cache,
    get_container_by_index,
    get_limits,
    get_nodename_for_kernel,
    is_cgroup2_unified_mode,
    is_unix_domain_socket,
    local_endpoint,
)

__all__ = [
    "CGROUP_ROOT",
    "BasicNodeStartupLatencyTracker",
    "BasicPodStartupLatencyTracker",
    "NodeStartupLatencyTracker",
    "PodStartupLatencyTracker",
    "ResourceOpts",
    "calculate_image_pulling_time",
    "create_listener",
    "from_apiserver_cache",
    "get_boot_time",
    "get_container_by_index",
    "get_limits",
    "get_nodename_for_kernel",
    "is_cgroup2_unified_mode",
    "is_unix_domain_socket",
    "local_endpoint",
]
