"""Manage the node's resources for its pods.

The container manager owns the cgroups above the containers: one for all pods, one for each QoS class and one for each
pod. It also decides which devices, environment variables and mounts the node's resources add to a container.

Go: pkg/kubelet/cm
"""

from kubelet.cm.cgroup_common import is_systemd_style_name, parse_systemd_to_cgroup_name
from kubelet.cm.cgroup_manager import CgroupManager, new_cgroup_manager, same_cpu_shares
from kubelet.cm.cgroup_v2_manager import cpu_shares_to_weight
from kubelet.cm.container_manager import (
    CGROUP_V1_DEPRECATED_WARNING,
    CGROUP_V2_KERNEL_WARNING,
    ContainerManager,
    DevicePluginResourceCapacity,
    NodeConfig,
    Status,
    parse_qos_reserved,
)
from kubelet.cm.container_manager_linux import ContainerManagerImpl
from kubelet.cm.container_manager_stub import ContainerManagerStub
from kubelet.cm.helpers import (
    MAX_SHARES,
    MIN_MILLI_CPU_LIMIT,
    MIN_QUOTA_PERIOD,
    MIN_SHARES,
    QUOTA_PERIOD,
    SHARES_PER_CPU,
    cpu_limits_from_config,
    cpu_requests_from_config,
    huge_page_limits,
    memory_limits_from_config,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    quota_to_milli_cpu,
    resource_config_for_pod,
    shares_to_milli_cpu,
)
from kubelet.cm.internal_container_lifecycle import InternalContainerLifecycle
from kubelet.cm.pod_container_manager import (
    PodContainerManager,
    PodContainerManagerNoop,
    get_pod_cgroup_name_suffix,
)
from kubelet.cm.types import CgroupName, QOSContainersInfo, ResourceConfig
from kubelet.util import is_cgroup2_unified_mode

__all__ = [
    "CGROUP_V1_DEPRECATED_WARNING",
    "CGROUP_V2_KERNEL_WARNING",
    "MAX_SHARES",
    "MIN_MILLI_CPU_LIMIT",
    "MIN_QUOTA_PERIOD",
    "MIN_SHARES",
    "QUOTA_PERIOD",
    "SHARES_PER_CPU",
    "CgroupManager",
    "CgroupName",
    "ContainerManager",
    "ContainerManagerImpl",
    "ContainerManagerStub",
    "DevicePluginResourceCapacity",
    "InternalContainerLifecycle",
    "NodeConfig",
    "PodContainerManager",
    "PodContainerManagerNoop",
    "QOSContainersInfo",
    "ResourceConfig",
    "Status",
    "cpu_limits_from_config",
    "cpu_requests_from_config",
    "cpu_shares_to_weight",
    "get_pod_cgroup_name_suffix",
    "huge_page_limits",
    "is_cgroup2_unified_mode",
    "is_systemd_style_name",
    "memory_limits_from_config",
    "milli_cpu_to_quota",
    "milli_cpu_to_shares",
    "new_cgroup_manager",
    "parse_qos_reserved",
    "parse_systemd_to_cgroup_name",
    "quota_to_milli_cpu",
    "resource_config_for_pod",
    "same_cpu_shares",
    "shares_to_milli_cpu",
]
