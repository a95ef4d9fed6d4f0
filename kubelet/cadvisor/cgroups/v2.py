"""Read cgroups of version 2, which have one hierarchy for all controllers.

Go: github.com/opencontainers/cgroups/fs2, github.com/google/cadvisor/container/libcontainer/handler.go
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kubelet.cadvisor.cgroups import common, files
from kubelet.cadvisor.cgroups.v1 import per_disk
from kubelet.cadvisor.info import v1 as info
from kubelet.util import CGROUP_ROOT
from pkg.util import procfs

_MIN_WEIGHT, _MAX_WEIGHT = 1, 10000
# The table maps keys of io.stat to their names in version 1.
_IO = {
    "rbytes": ("io_service_bytes", "Read"),
    "wbytes": ("io_service_bytes", "Write"),
    "rios": ("io_serviced", "Read"),
    "wios": ("io_serviced", "Write"),
    "cost.usage": ("io_cost_usage", "Count"),
    "cost.wait": ("io_cost_wait", "Count"),
    "cost.indebt": ("io_cost_indebt", "Count"),
    "cost.indelay": ("io_cost_indelay", "Count"),
}


class CgroupsV2:
    """Read the cgroups below the mount point of the unified hierarchy. `proc` is the path of /proc."""

    def __init__(self, root: str = CGROUP_ROOT, proc: str = "/proc") -> None:
        self._root = root
        self._proc = proc

    def exists(self, name: str) -> bool:
        return os.path.isdir(self._path(name))

    def names(self) -> list[str]:
        return common.walk([self._root])

    def processes(self, name: str) -> list[int]:
        return common.process_ids(self._path(name))

    def spec(self, name: str) -> info.ContainerSpec:
        path = self._path(name)
        there = os.path.isdir(path)
        spec = info.ContainerSpec(
            creation_time=common.creation_time([path], "cgroup.events"),
            has_cpu=there,
            has_processes=there,
            has_disk_io=there,
        )
        spec.cpu.limit = _weight_to_shares(files.number_or_zero(path, "cpu.weight"))
        spec.cpu.quota, spec.cpu.period = _cpu_max(files.read_or_empty(path, "cpu.max"))
        if os.path.exists(f"{path}/memory.max"):
            spec.has_memory = True
            spec.memory.reservation = files.number_or_zero(path, "memory.min")
            # A limit that cannot be read must raise an error: with a limit of 0 no memory would be available, and the
            # eviction manager would evict pods.
            spec.memory.limit = files.number(path, "memory.max")
            spec.memory.swap_limit = files.number_or_zero(path, "memory.swap.max")
        spec.processes.limit = files.number_or_zero(path, "pids.max")
        return spec

    def stats(self, name: str) -> info.ContainerStats:
        path = self._path(name)
        stats = info.ContainerStats(timestamp=datetime.now(UTC))
        # Old kernels have no statistics for the root cgroup.
        read = files.read_or_empty if name == "/" else files.read
        stats.cpu = _cpu(files.pairs(read(path, "cpu.stat")))
        stats.memory = self._memory(path)
        _io(files.read_or_empty(path, "io.stat"), stats.disk_io)
        stats.cpu.psi = _pressure(path, "cpu.pressure")
        stats.memory.psi = _pressure(path, "memory.pressure")
        stats.disk_io.psi = _pressure(path, "io.pressure")
        _threads(path, stats.processes)
        stats.oom_events = files.pairs(files.read_or_empty(path, "memory.events.local")).get("oom_kill", 0)
        return stats

    def _path(self, name: str) -> str:
        return self._root + name.rstrip("/")

    def _memory(self, path: str) -> info.MemoryStats:
        text = files.read_or_empty(path, "memory.stat")
        if not text:
            return info.MemoryStats()  # The memory controller is off.
        stat = files.pairs(text)
        anon, cached = stat.get("anon", 0), stat.get("file", 0)
        # The machine's root cgroup has no memory counters. Its usage is calculated as version 1 does, and its swap is
        # the machine's. The root that a kubelet in a container sees is an ordinary cgroup.
        is_root = path == self._root and not os.path.exists(f"{path}/memory.current")
        usage = anon + cached if is_root else files.number(path, "memory.current")
        faults = info.MemoryStatsMemoryData(pgfault=stat.get("pgfault", 0), pgmajfault=stat.get("pgmajfault", 0))
        return info.MemoryStats(
            usage=usage,
            max_usage=files.number_or_zero(path, "memory.peak"),
            cache=cached,
            rss=anon,
            swap=self._machine_swap() if is_root else files.number_or_zero(path, "memory.swap.current"),
            mapped_file=stat.get("file_mapped", 0),
            working_set=max(usage - stat.get("inactive_file", 0), 0),
            total_active_file=stat.get("active_file", 0),
            total_inactive_file=stat.get("inactive_file", 0),
            container_data=faults,
            hierarchical_data=faults,
        )

    def _machine_swap(self) -> int:
        """Return the machine's swap usage in bytes."""
        kibibytes = {
            key: int(value.split()[0])
            for key, _, value in (line.partition(":") for line in procfs.lines(f"{self._proc}/meminfo"))
            if key in ("SwapTotal", "SwapFree")
        }
        return (kibibytes.get("SwapTotal", 0) - kibibytes.get("SwapFree", 0)) * 1024


def _weight_to_shares(weight: int) -> int:
    """Convert a weight between 1 and 10000 to CPU shares of version 1, between 2 and 262144; other weights become 0."""
    if not _MIN_WEIGHT <= weight <= _MAX_WEIGHT:
        return 0
    return 2 + (weight - 1) * 262142 // 9999


def _cpu_max(text: str) -> tuple[int, int]:
    """Return quota and period in microseconds; the quota is 0 if there is no limit."""
    quota, _, period = text.strip().partition(" ")
    if not period:
        return 0, 0
    return (0 if quota == "max" else int(quota)), int(period)


def _cpu(stat: dict[str, int]) -> info.CpuStats:
    usage = info.CpuUsage(
        total=stat.get("usage_usec", 0) * 1000,
        user=stat.get("user_usec", 0) * 1000,
        system=stat.get("system_usec", 0) * 1000,
    )
    cfs = info.CpuCFS(
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled_time=stat.get("throttled_usec", 0) * 1000,
        bursts_periods=stat.get("nr_bursts", 0),
        burst_time=stat.get("burst_usec", 0) * 1000,
    )
    return info.CpuStats(usage=usage, cfs=cfs)


def _io(text: str, stats: info.DiskIoStats) -> None:
    """Parse lines such as "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0"."""
    tables: dict[str, dict[tuple[int, int], dict[str, int]]] = {}
    for line in procfs.split_lines(text):
        device, *figures = line.split()
        major, colon, minor = device.partition(":")
        if not colon:
            continue
        for figure in figures:
            key, _, value = figure.partition("=")
            if key in _IO:
                field, operation = _IO[key]
                tables.setdefault(field, {}).setdefault((int(major), int(minor)), {})[operation] = int(value)
    for field, table in tables.items():
        setattr(stats, field, per_disk(table))


def _pressure(path: str, name: str) -> info.PSIStats:
    """Parse lines such as "some avg10=0.00 avg60=0.12 avg300=0.05 total=123".

    The values are 0 if the kernel does not offer the file.
    """
    stats = info.PSIStats()
    for line in procfs.split_lines(files.read_or_empty(path, name)):
        kind, *figures = line.split()
        values = dict(figure.split("=", 1) for figure in figures)
        data = info.PSIData(
            total=int(values["total"]),
            avg10=float(values["avg10"]),
            avg60=float(values["avg60"]),
            avg300=float(values["avg300"]),
        )
        if kind == "some":
            stats.some = data
        elif kind == "full":
            stats.full = data
    return stats


def _threads(path: str, stats: info.ProcessStats) -> None:
    """Count the tasks, or the processes if the pids controller is off."""
    try:
        stats.threads_current = files.number(path, "pids.current")
    except FileNotFoundError:
        stats.threads_current = len(common.process_ids(path))
        return
    limit = files.number_or_zero(path, "pids.max")
    stats.threads_max = 0 if limit == files.UNLIMITED else limit


if TYPE_CHECKING:
    _: common.Cgroups = CgroupsV2()
