"""Convert cAdvisor's statistics to those of the summary.

Go: pkg/kubelet/stats/helper.go
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from kubelet import cadvisor as kubecadvisor
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v1 as cadvisorapiv1
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from pkg import klog
from pkg.apimachinery import types

if TYPE_CHECKING:
    from kubelet.server.stats import FsResourceAnalyzerInterface
    from kubelet.stats.host_stats_provider import HostStatsProvider

DEFAULT_NETWORK_INTERFACE_NAME = "eth0"
# A memory limit above this value means "unlimited", whatever the kernel rounded it to.
_MAX_MEMORY_SIZE = 1 << 62


def cadvisor_info_to_cpu_and_memory_stats(
    info: cadvisorapiv2.ContainerInfo,
) -> tuple[statsapi.CPUStats | None, statsapi.MemoryStats | None]:
    """Return the CPU and memory usage. Both are None for a container without statistics."""
    cstat = latest_container_stats(info)
    if cstat is None:
        return None, None
    cpu = statsapi.CPUStats(time=cstat.timestamp, usage_nano_cores=0, usage_core_nano_seconds=0)
    if info.spec.has_cpu:
        if cstat.cpu_inst is not None:
            cpu.usage_nano_cores = cstat.cpu_inst.usage.total
        if cstat.cpu is not None:
            cpu.usage_core_nano_seconds = cstat.cpu.usage.total
            cpu.psi = cadvisor_psi_to_stats_psi(cstat.cpu.psi)
    if not info.spec.has_memory or cstat.memory is None:
        return cpu, statsapi.MemoryStats(time=cstat.timestamp, working_set_bytes=0)
    memory = statsapi.MemoryStats(
        time=cstat.timestamp,
        usage_bytes=cstat.memory.usage,
        working_set_bytes=cstat.memory.working_set,
        rss_bytes=cstat.memory.rss,
        page_faults=cstat.memory.container_data.pgfault,
        major_page_faults=cstat.memory.container_data.pgmajfault,
        psi=cadvisor_psi_to_stats_psi(cstat.memory.psi),
    )
    if not is_memory_unlimited(info.spec.memory.limit):
        memory.available_bytes = _left(info.spec.memory.limit, cstat.memory.working_set)
    return cpu, memory


def cadvisor_info_to_container_stats(name: str, info: cadvisorapiv2.ContainerInfo) -> statsapi.ContainerStats:
    """Return all statistics except those of the disk."""
    result = cadvisor_info_to_container_cpu_and_memory_stats(name, info)
    result.io = cadvisor_info_to_io_stats(info)
    return result


def cadvisor_info_to_container_cpu_and_memory_stats(
    name: str, info: cadvisorapiv2.ContainerInfo
) -> statsapi.ContainerStats:
    cpu, memory = cadvisor_info_to_cpu_and_memory_stats(info)
    return statsapi.ContainerStats(
        name=name,
        start_time=info.spec.creation_time,
        cpu=cpu,
        memory=memory,
        swap=cadvisor_info_to_swap_stats(info),
    )


def cadvisor_info_to_process_stats(info: cadvisorapiv2.ContainerInfo) -> statsapi.ProcessStats | None:
    cstat = latest_container_stats(info)
    if cstat is None or cstat.processes is None:
        return None
    return statsapi.ProcessStats(process_count=cstat.processes.process_count)


def merge_process_stats(
    first: statsapi.ProcessStats | None, second: statsapi.ProcessStats | None
) -> statsapi.ProcessStats | None:
    """Return the sum of both."""
    if first is None or second is None:
        return first or second
    return statsapi.ProcessStats(process_count=(first.process_count or 0) + (second.process_count or 0))


def cadvisor_info_to_network_stats(info: cadvisorapiv2.ContainerInfo) -> statsapi.NetworkStats | None:
    cstat = latest_container_stats(info)
    if not info.spec.has_network or cstat is None or cstat.network is None:
        return None
    result = statsapi.NetworkStats(time=cstat.timestamp, interfaces=[])
    for interface in cstat.network.interfaces:
        stats = statsapi.InterfaceStats(
            name=interface.name,
            rx_bytes=interface.rx_bytes,
            rx_errors=interface.rx_errors,
            tx_bytes=interface.tx_bytes,
            tx_errors=interface.tx_errors,
        )
        result.interfaces.append(stats)
        if interface.name == DEFAULT_NETWORK_INTERFACE_NAME:
            set_default_interface(result, stats)
    return result


def set_default_interface(network: statsapi.NetworkStats, interface: statsapi.InterfaceStats) -> None:
    """Set the interface as the default one."""
    network.name = interface.name
    network.rx_bytes, network.rx_errors = interface.rx_bytes, interface.rx_errors
    network.tx_bytes, network.tx_errors = interface.tx_bytes, interface.tx_errors


def cadvisor_info_to_swap_stats(info: cadvisorapiv2.ContainerInfo) -> statsapi.SwapStats | None:
    cstat = latest_container_stats(info)
    if cstat is None or not info.spec.has_memory or cstat.memory is None:
        return None
    result = statsapi.SwapStats(time=cstat.timestamp, swap_usage_bytes=cstat.memory.swap)
    if not is_memory_unlimited(info.spec.memory.swap_limit):
        result.swap_available_bytes = _left(info.spec.memory.swap_limit, cstat.memory.swap)
    return result


def cadvisor_info_to_io_stats(info: cadvisorapiv2.ContainerInfo) -> statsapi.IOStats | None:
    cstat = latest_container_stats(info)
    if cstat is None or not info.spec.has_disk_io or cstat.disk_io is None:
        return None
    return statsapi.IOStats(time=cstat.timestamp, psi=cadvisor_psi_to_stats_psi(cstat.disk_io.psi))


def latest_container_stats(info: cadvisorapiv2.ContainerInfo) -> cadvisorapiv2.ContainerStats | None:
    return info.stats[-1] if info.stats else None


def is_memory_unlimited(limit: int) -> bool:
    return limit > _MAX_MEMORY_SIZE


def _left(limit: int, used: int) -> int:
    """Return what is left of a limit.

    DIVERGES (fault of Go): if a container uses more memory than its limit, 0 bytes are available.
    Go: pkg/kubelet/stats/helper.go, cadvisorInfoToCPUandMemoryStats: in the Go kubelet the unsigned number wraps around
    to nearly 2**64.
    Why: a pod whose limit was just lowered would seem to have an enormous amount of memory available.
    Test: helper_test.py:test_what_the_limit_leaves
    """
    return max(limit - used, 0)


def get_cgroup_info(
    cadvisor: kubecadvisor.Interface, container_name: str, update_stats: bool
) -> cadvisorapiv2.ContainerInfo:
    """Return one cgroup, measured during this call if update_stats is set. Raise LookupError and OSError."""
    # The current rate needs two samples.
    options = cadvisorapiv2.RequestOptions(count=2, max_age=0.0 if update_stats else None)
    found = cadvisor.container_info_v2(container_name, options)
    if len(found) != 1:
        raise LookupError(f"unexpected number of containers: {len(found)}")
    return next(iter(found.values()))


def get_cgroup_stats(
    cadvisor: kubecadvisor.Interface, container_name: str, update_stats: bool
) -> cadvisorapiv2.ContainerStats:
    """Return the latest statistics of a cgroup. Raise LookupError and OSError."""
    stats = latest_container_stats(get_cgroup_info(cadvisor, container_name, update_stats))
    if stats is None:
        raise LookupError(f'failed to get latest stats from container info for "{container_name}"')
    return stats


def inodes_used(fs: cadvisorapiv2.FsInfo) -> int | None:
    """Return the used inodes of the whole file system, or None if it does not count inodes."""
    return None if fs.inodes is None or fs.inodes_free is None else fs.inodes - fs.inodes_free


def root_fs_info_to_fs_stats(root_fs_info: cadvisorapiv2.FsInfo) -> statsapi.FsStats:
    """Return the totals of the file system, without any usage.

    Go: host_stats_provider.go
    """
    return statsapi.FsStats(
        time=root_fs_info.timestamp,
        available_bytes=root_fs_info.available,
        capacity_bytes=root_fs_info.capacity,
        inodes_free=root_fs_info.inodes_free,
        inodes=root_fs_info.inodes,
    )


def calc_ephemeral_storage(
    containers: list[statsapi.ContainerStats],
    volumes: list[statsapi.VolumeStats],
    root_fs_info: cadvisorapiv2.FsInfo,
    pod_log_stats: statsapi.FsStats | None,
    etc_hosts_stats: statsapi.FsStats | None,
) -> statsapi.FsStats:
    """Return what a pod uses of the node's own disk."""
    result = root_fs_info_to_fs_stats(root_fs_info)
    for container in containers:
        if container.rootfs is None:
            continue
        add_fs_usage(result, container.rootfs)
        if container.logs is not None:
            add_fs_usage(result, container.logs)
    for part in (*volumes, pod_log_stats, etc_hosts_stats):
        if part is not None:
            add_fs_usage(result, part)
    return result


def add_fs_usage(stats: statsapi.FsStats, part: statsapi.FsStats) -> None:
    """Add the usage of a part. The time becomes that of the newest part."""
    stats.used_bytes = add_usage(stats.used_bytes, part.used_bytes)
    stats.inodes_used = add_usage(stats.inodes_used, part.inodes_used)
    stats.time = max_update_time(stats.time, part.time)


def max_update_time(first: datetime | None, second: datetime | None) -> datetime | None:
    if first is None or second is None:
        return first or second
    return max(first, second)


def add_usage(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def make_pod_storage_stats(
    stats: statsapi.PodStats,
    root_fs_info: cadvisorapiv2.FsInfo,
    resource_analyzer: FsResourceAnalyzerInterface,
    host_stats_provider: HostStatsProvider,
) -> None:
    """Set the pod's volumes and its usage of the node's own disk."""
    ref = stats.pod_ref
    uid = types.UID(ref.uid)
    ephemeral_stats: list[statsapi.VolumeStats] = []
    volumes = resource_analyzer.get_pod_volume_stats(uid)
    if volumes is not None:
        ephemeral_stats = volumes.ephemeral_volumes
        stats.volume_stats = volumes.ephemeral_volumes + volumes.persistent_volumes
    log_stats = etc_hosts_stats = None
    try:
        log_stats = host_stats_provider.get_pod_log_stats(ref.namespace, ref.name, uid, root_fs_info)
    except OSError as err:
        klog.v(6).info_s("Unable to fetch pod log stats", pod=klog.kref(ref.namespace, ref.name), err=err)
    try:
        etc_hosts_stats = host_stats_provider.get_pod_etc_hosts_stats(uid, root_fs_info)
    except OSError as err:
        klog.v(6).info_s("Unable to fetch pod etc hosts stats", pod=klog.kref(ref.namespace, ref.name), err=err)
    stats.ephemeral_storage = calc_ephemeral_storage(
        stats.containers, ephemeral_stats, root_fs_info, log_stats, etc_hosts_stats
    )


def cadvisor_psi_to_stats_psi(psi: cadvisorapiv1.PSIStats) -> statsapi.PSIStats:
    return statsapi.PSIStats(full=_psi_data(psi.full), some=_psi_data(psi.some))


def _psi_data(data: cadvisorapiv1.PSIData) -> statsapi.PSIData:
    return statsapi.PSIData(total=data.total, avg10=data.avg10, avg60=data.avg60, avg300=data.avg300)
