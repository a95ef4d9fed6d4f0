"""Read facts about the machine from /proc and /sys.

The Go kubelet wraps the cAdvisor library. This package reads the facts that a kubelet needs by itself.

Go: pkg/kubelet/cadvisor
"""

from kubelet.cadvisor.cadvisor import Cadvisor
from kubelet.cadvisor.cgroups import is_psi_enabled
from kubelet.cadvisor.containers import RuntimeContainers
from kubelet.cadvisor.info.v1 import Cache, Core, HugePagesInfo, MachineInfo, Node, VersionInfo
from kubelet.cadvisor.info.v2 import ContainerInfo, FsInfo, RequestOptions
from kubelet.cadvisor.types import Interface
from kubelet.cadvisor.util import capacity_from_machine_info, ephemeral_storage_capacity_from_fs_info

__all__ = [
    "Cache",
    "Cadvisor",
    "ContainerInfo",
    "Core",
    "FsInfo",
    "HugePagesInfo",
    "Interface",
    "MachineInfo",
    "Node",
    "RequestOptions",
    "RuntimeContainers",
    "VersionInfo",
    "capacity_from_machine_info",
    "ephemeral_storage_capacity_from_fs_info",
    "is_psi_enabled",
]
