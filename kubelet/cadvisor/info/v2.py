"""Figures as the kubelet's statistics ask for them: what a container has not is None.

Go: github.com/google/cadvisor/info/v2 (container.go, conversion.go)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from kubelet.cadvisor.info import v1
from pkg import klog

TYPE_NAME = "name"

_NEVER = datetime.fromtimestamp(0, UTC)


class ContainerSpec(msgspec.Struct):
    """What a container is made of, with the names it has besides that of its cgroup."""

    creation_time: datetime = _NEVER
    aliases: list[str] = msgspec.field(default_factory=list)
    namespace: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    has_cpu: bool = False
    cpu: v1.CpuSpec = msgspec.field(default_factory=v1.CpuSpec)
    has_memory: bool = False
    memory: v1.MemorySpec = msgspec.field(default_factory=v1.MemorySpec)
    has_processes: bool = False
    processes: v1.ProcessSpec = msgspec.field(default_factory=v1.ProcessSpec)
    has_network: bool = False
    has_filesystem: bool = False
    has_disk_io: bool = False
    image: str = ""


class CpuInstUsage(msgspec.Struct):
    """Use of the processors between two samples, in billionths of a core."""

    total: int = 0
    per_cpu: list[int] = msgspec.field(default_factory=list)
    user: int = 0
    system: int = 0


class CpuInstStats(msgspec.Struct):
    """Use of the processors at this moment."""

    usage: CpuInstUsage = msgspec.field(default_factory=CpuInstUsage)


class NetworkStats(msgspec.Struct):
    """The interfaces of a container's network namespace."""

    interfaces: list[v1.InterfaceStats] = msgspec.field(default_factory=list)


class FilesystemStats(msgspec.Struct):
    """Bytes and inodes that a container uses, its logs included in the total."""

    total_usage_bytes: int | None = None
    base_usage_bytes: int | None = None
    inode_usage: int | None = None


class ContainerStats(msgspec.Struct):
    """The figures of a container at one moment; None for what it does not have."""

    timestamp: datetime = _NEVER
    cpu: v1.CpuStats | None = None
    # None in the first sample of a container: a rate needs two.
    cpu_inst: CpuInstStats | None = None
    disk_io: v1.DiskIoStats | None = None
    memory: v1.MemoryStats | None = None
    network: NetworkStats | None = None
    processes: v1.ProcessStats | None = None
    filesystem: FilesystemStats | None = None


class ContainerInfo(msgspec.Struct):
    """A container and its figures, the newest last."""

    spec: ContainerSpec = msgspec.field(default_factory=ContainerSpec)
    stats: list[ContainerStats] = msgspec.field(default_factory=list)


class FsInfo(msgspec.Struct):
    """A file system; sizes in bytes, available without what is kept for root. inodes is None when it counts none."""

    capacity: int = 0
    available: int = 0
    usage: int = 0
    timestamp: datetime = _NEVER
    device: str = ""
    mountpoint: str = ""
    labels: list[str] = msgspec.field(default_factory=list)
    inodes: int | None = None
    inodes_free: int | None = None


class RequestOptions(msgspec.Struct, frozen=True):
    """Which figures are wanted.

    count is how many samples at most, the newest ones, -1 for all there are. max_age in seconds: figures older than
    that are read anew; None asks for no new ones where there are some.
    """

    id_type: str = TYPE_NAME
    count: int = 1
    recursive: bool = False
    max_age: float | None = None


def container_stats_from_v1(
    container_name: str, spec: v1.ContainerSpec, stats: list[v1.ContainerStats]
) -> list[ContainerStats]:
    """The samples, the oldest first, each with the rate since the one before it."""
    result: list[ContainerStats] = []
    last: v1.ContainerStats | None = None
    for value in stats:
        stat = ContainerStats(timestamp=value.timestamp)
        if spec.has_cpu:
            stat.cpu = value.cpu
            try:
                stat.cpu_inst = inst_cpu_stats(last, value)
            except ValueError as err:
                klog.warning_s("Could not get instant cpu stats", err=err)
            last = value
        if spec.has_memory:
            stat.memory = value.memory
        if spec.has_network:
            stat.network = NetworkStats(interfaces=value.network.interfaces)
        if spec.has_processes:
            stat.processes = value.processes
        if spec.has_filesystem:
            stat.filesystem = _filesystem_from_v1(container_name, value.filesystem)
        if spec.has_disk_io:
            stat.disk_io = value.disk_io
        result.append(stat)
    return result


def _filesystem_from_v1(container_name: str, filesystems: list[v1.FsStats]) -> FilesystemStats | None:
    """None for a container on several devices: there is no one figure of it."""
    if len(filesystems) > 1 and container_name != "/":
        klog.v(4).info_s(
            "Failed to handle multiple devices for container, skipping its file systems", name=container_name
        )
    if len(filesystems) != 1:
        return None
    only = filesystems[0]
    return FilesystemStats(total_usage_bytes=only.usage, base_usage_bytes=only.base_usage, inode_usage=only.inodes)


def inst_cpu_stats(last: v1.ContainerStats | None, cur: v1.ContainerStats) -> CpuInstStats | None:
    """The rate between two samples; None without a first one. Raises ValueError when they cannot be compared."""
    if last is None:
        return None
    if cur.steady <= last.steady:
        raise ValueError("container stats move backwards in time")
    if len(last.cpu.usage.per_cpu) != len(cur.cpu.usage.per_cpu):
        raise ValueError("different number of cpus")
    nanoseconds = (cur.steady - last.steady) // timedelta(microseconds=1) * 1000

    def rate(before: int, now: int) -> int:
        if now < before:
            raise ValueError("cumulative stats decrease")
        return int((now - before) / nanoseconds * 1e9)

    before, now = last.cpu.usage, cur.cpu.usage
    return CpuInstStats(
        usage=CpuInstUsage(
            total=rate(before.total, now.total),
            per_cpu=[rate(old, new) for old, new in zip(before.per_cpu, now.per_cpu, strict=True)],
            user=rate(before.user, now.user),
            system=rate(before.system, now.system),
        )
    )


def container_spec_from_v1(spec: v1.ContainerSpec, aliases: list[str], namespace: str) -> ContainerSpec:
    """The same said in v2's way; limits only for what the container has."""
    result = ContainerSpec(
        creation_time=spec.creation_time,
        aliases=aliases,
        namespace=namespace,
        labels=spec.labels,
        has_cpu=spec.has_cpu,
        has_memory=spec.has_memory,
        has_processes=spec.has_processes,
        has_network=spec.has_network,
        has_filesystem=spec.has_filesystem,
        has_disk_io=spec.has_disk_io,
        image=spec.image,
    )
    if spec.has_cpu:
        result.cpu = v1.CpuSpec(limit=spec.cpu.limit)
    if spec.has_memory:
        result.memory = spec.memory
    return result
