"""Convert machine facts to a node's capacity.

Go: pkg/kubelet/cadvisor/util.go
"""

from __future__ import annotations

from kubelet.cadvisor.info.v1 import MachineInfo
from kubelet.cadvisor.info.v2 import FsInfo
from pkg.api.core import v1
from pkg.apimachinery.api import resource


def capacity_from_machine_info(info: MachineInfo) -> dict[str, resource.Quantity]:
    """Return the machine's CPU, memory and huge pages by resource name."""
    capacity = {
        v1.RESOURCE_CPU: resource.new_milli_quantity(info.num_cores * 1000),
        v1.RESOURCE_MEMORY: resource.new_quantity(info.memory_capacity, resource.Format.BINARY_SI),
    }
    for pages in info.huge_pages:
        size = pages.page_size * 1024
        page = resource.new_quantity(size, resource.Format.BINARY_SI)
        name = f"{v1.RESOURCE_HUGE_PAGES_PREFIX}{page}"
        capacity[name] = resource.new_quantity(size * pages.num_pages, resource.Format.BINARY_SI)
    return capacity


def ephemeral_storage_capacity_from_fs_info(info: FsInfo) -> dict[str, resource.Quantity]:
    """Return the node's ephemeral storage by resource name."""
    return {v1.RESOURCE_EPHEMERAL_STORAGE: resource.new_quantity(info.capacity, resource.Format.BINARY_SI)}
