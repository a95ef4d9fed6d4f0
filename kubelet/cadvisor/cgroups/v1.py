"""Read cgroups of version 1, which have one hierarchy for each controller.

Go: github.com/opencontainers/cgroups/fs, github.com/google/cadvisor/container/libcontainer/handler.go
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kubelet.cadvisor.cgroups import common, files
from kubelet.cadvisor.info import v1 as info
from kubelet.util import CGROUP_ROOT
from pkg.util import procfs

# A kubelet shows the statistics of these controllers.
_CONTROLLERS = ("cpu", "cpuacct", "memory", "pids", "blkio")
# A tick in cpuacct.stat has this length.
_TICK_NANOSECONDS = 10_000_000

# These files have the disk statistics of each I/O scheduler. The first group whose files hold numbers counts.
_BFQ = {"bfq.io_serviced_recursive": "io_serviced", "bfq.io_service_bytes_recursive": "io_service_bytes"}
_TIMES = {
    "sectors_recursive": "sectors",
    "io_service_time_recursive": "io_service_time",
    "io_wait_time_recursive": "io_wait_time",
    "io_merged_recursive": "io_merged",
    "io_queued_recursive": "io_queued",
    "time_recursive": "io_time",
    "io_serviced_recursive": "io_serviced",
    "io_service_bytes_recursive": "io_service_bytes",
}
_BLKIO_GROUPS = (
    {f"bfq.{name}": field for name, field in _TIMES.items()},
    _BFQ,
    _TIMES,
    {"throttle.io_serviced_recursive": "io_serviced", "throttle.io_service_bytes_recursive": "io_service_bytes"},
    {"throttle.io_serviced": "io_serviced", "throttle.io_service_bytes": "io_service_bytes"},
)


class CgroupsV1:
    """Read the cgroups below a directory that has one directory for each controller."""

    def __init__(self, root: str = CGROUP_ROOT) -> None:
        self._mounts = {name: f"{root}/{name}" for name in _CONTROLLERS if os.path.isdir(f"{root}/{name}")}
        # Controllers that are mounted together are links to the same directory.
        self._distinct = sorted({os.path.realpath(path) for path in self._mounts.values()})

    def exists(self, name: str) -> bool:
        return bool(self._paths(name))

    def names(self) -> list[str]:
        return common.walk(self._distinct)

    def processes(self, name: str) -> list[int]:
        path = self._paths(name).get("cpu")
        return common.process_ids(path) if path is not None else []

    def spec(self, name: str) -> info.ContainerSpec:
        paths = self._paths(name)
        spec = info.ContainerSpec(creation_time=common.creation_time(list(paths.values()), "cgroup.clone_children"))
        if cpu := paths.get("cpu"):
            spec.has_cpu = True
            spec.cpu.limit = files.number_or_zero(cpu, "cpu.shares")
            spec.cpu.period = files.number_or_zero(cpu, "cpu.cfs_period_us")
            spec.cpu.quota = files.number_or_zero(cpu, "cpu.cfs_quota_us")
        if memory := paths.get("memory"):
            spec.has_memory = True
            # A limit that cannot be read must raise an error: with a limit of 0 no memory would be available, and the
            # eviction manager would evict pods.
            spec.memory.limit = files.number(memory, "memory.limit_in_bytes")
            spec.memory.swap_limit = files.number_or_zero(memory, "memory.memsw.limit_in_bytes")
            spec.memory.reservation = files.number_or_zero(memory, "memory.soft_limit_in_bytes")
        if (pids := paths.get("pids")) and name != "/":  # The root cgroup has no such files.
            spec.has_processes = True
            spec.processes.limit = files.number_or_zero(pids, "pids.max")
        spec.has_disk_io = "blkio" in paths
        return spec

    def stats(self, name: str) -> info.ContainerStats:
        paths = self._paths(name)
        if not paths:
            raise FileNotFoundError(f"cgroup {name} does not exist")
        stats = info.ContainerStats(timestamp=datetime.now(UTC))
        if cpu := paths.get("cpu"):
            stats.cpu.cfs = _cfs(cpu)
        if cpuacct := paths.get("cpuacct"):
            stats.cpu.usage = _cpu_usage(cpuacct)
        if memory := paths.get("memory"):
            stats.memory = _memory(memory)
            stats.oom_events = files.pairs(files.read_or_empty(memory, "memory.oom_control")).get("oom_kill", 0)
        if blkio := paths.get("blkio"):
            _blkio(blkio, stats.disk_io)
        if (pids := paths.get("pids")) and name != "/":
            stats.processes.threads_current = files.number(pids, "pids.current")
            limit = files.number(pids, "pids.max")
            stats.processes.threads_max = 0 if limit == files.UNLIMITED else limit
        return stats

    def _paths(self, name: str) -> dict[str, str]:
        """Return the cgroup's directory in each hierarchy that contains it; some lack it."""
        paths = {controller: mount + name.rstrip("/") for controller, mount in self._mounts.items()}
        return {controller: path for controller, path in paths.items() if os.path.isdir(path)}


def _cfs(path: str) -> info.CpuCFS:
    stat = files.pairs(files.read_or_empty(path, "cpu.stat"))
    return info.CpuCFS(
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled_time=stat.get("throttled_time", 0),
    )


def _cpu_usage(path: str) -> info.CpuUsage:
    ticks = files.pairs(files.read(path, "cpuacct.stat"))
    return info.CpuUsage(
        total=files.number(path, "cpuacct.usage"),
        user=ticks.get("user", 0) * _TICK_NANOSECONDS,
        system=ticks.get("system", 0) * _TICK_NANOSECONDS,
    )


def _memory(path: str) -> info.MemoryStats:
    stat = files.pairs(files.read(path, "memory.stat"))
    prefix = "total_" if files.number_or_zero(path, "memory.use_hierarchy") == 1 else ""
    usage = files.number(path, "memory.usage_in_bytes")
    inactive_file = stat.get("total_inactive_file", 0)
    faults = info.MemoryStatsMemoryData(pgfault=stat.get("pgfault", 0), pgmajfault=stat.get("pgmajfault", 0))
    return info.MemoryStats(
        usage=usage,
        max_usage=files.number(path, "memory.max_usage_in_bytes"),
        cache=stat.get(f"{prefix}cache", 0),
        rss=stat.get(f"{prefix}rss", 0),
        swap=stat.get(f"{prefix}swap", 0),
        mapped_file=stat.get(f"{prefix}mapped_file", 0),
        working_set=max(usage - inactive_file, 0),
        total_active_file=stat.get("total_active_file", 0),
        total_inactive_file=inactive_file,
        failcnt=files.number(path, "memory.failcnt"),
        kernel_usage=files.number_or_zero(path, "memory.kmem.usage_in_bytes"),
        # Both fields get the counters of the cgroup itself, as in cAdvisor.
        container_data=faults,
        hierarchical_data=faults,
    )


def _blkio(path: str, stats: info.DiskIoStats) -> None:
    for group in _BLKIO_GROUPS:
        for number, (name, field) in enumerate(group.items()):
            disks = _disks(files.read_or_empty(path, f"blkio.{name}"))
            if not disks:
                if number == 0:
                    break  # The disk uses another scheduler.
                return
            setattr(stats, field, disks)
        else:
            return


def _disks(text: str) -> list[info.PerDiskStats]:
    """Parse lines such as "8:0 Read 4096" or "8:0 12", without the total at the end."""
    disks: dict[tuple[int, int], dict[str, int]] = {}
    for line in procfs.split_lines(text):
        words = line.split()
        major, colon, minor = words[0].partition(":")
        if colon:
            operation = words[1] if len(words) > 2 else "Count"
            disks.setdefault((int(major), int(minor)), {})[operation] = int(words[-1])
    return per_disk(disks)


def per_disk(disks: Mapping[tuple[int, int], dict[str, int]]) -> list[info.PerDiskStats]:
    """Return one entry for each disk; the caller adds the device names."""
    return [info.PerDiskStats(major=major, minor=minor, stats=stats) for (major, minor), stats in disks.items()]


if TYPE_CHECKING:
    _: common.Cgroups = CgroupsV1()
