"""Define the statistics in the form that the kubelet asks for: None stands for statistics that a container lacks.

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
    """Describe a container, with its names in the runtime."""

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
    """Hold the CPU usage between two samples, in billionths of a core."""

    total: int = 0
    per_cpu: list[int] = msgspec.field(default_factory=list)
    user: int = 0
    system: int = 0


class CpuInstStats(msgspec.Struct):
    """Hold the current CPU usage."""

    usage: CpuInstUsage = msgspec.field(default_factory=CpuInstUsage)


class NetworkStats(msgspec.Struct):
    """Hold the interfaces of a container's network namespace."""

    interfaces: list[v1.InterfaceStats] = msgspec.field(default_factory=list)


class FilesystemStats(msgspec.Struct):
    """Hold the bytes and inodes that a container uses; the total includes its logs."""

    total_usage_bytes: int | None = None
    base_usage_bytes: int | None = None
    inode_usage: int | None = None


class ContainerStats(msgspec.Struct):
    """Hold the statistics of a container at one moment; None means that the container does not have them."""

    timestamp: datetime = _NEVER
    cpu: v1.CpuStats | None = None
    # The value is None in the first sample of a container, because a rate needs two samples.
    cpu_inst: CpuInstStats | None = None
    disk_io: v1.DiskIoStats | None = None
    memory: v1.MemoryStats | None = None
    network: NetworkStats | None = None
    processes: v1.ProcessStats | None = None
    filesystem: FilesystemStats | None = None


class ContainerInfo(msgspec.Struct):
    """Hold a container and its statistics, the newest last."""

    spec: ContainerSpec = msgspec.field(default_factory=ContainerSpec)
    stats: list[ContainerStats] = msgspec.field(default_factory=list)


class FsInfo(msgspec.Struct):
    """Describe a file system. Sizes are in bytes; `available` excludes the blocks reserved for root.

    `inodes` is None if the file system does not count inodes.
    """

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
    """Describe which statistics a caller asks for.

    `count` limits the samples to the newest ones; -1 asks for all. `max_age` is in seconds: statistics that
    are older are read again. None accepts existing statistics of any age.
    """

    id_type: str = TYPE_NAME
    count: int = 1
    recursive: bool = False
    max_age: float | None = None


def container_stats_from_v1(
    container_name: str, spec: v1.ContainerSpec, stats: list[v1.ContainerStats]
) -> list[ContainerStats]:
    """Return the samples, oldest first, each with the rate since the previous one."""
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
    """Return the usage of a container's file system, or None if the container is not on exactly one device."""
    if len(filesystems) > 1 and container_name != "/":
        klog.v(4).info_s(
            "Failed to handle multiple devices for container, skipping its file systems", name=container_name
        )
    if len(filesystems) != 1:
        return None
    only = filesystems[0]
    return FilesystemStats(total_usage_bytes=only.usage, base_usage_bytes=only.base_usage, inode_usage=only.inodes)


def inst_cpu_stats(last: v1.ContainerStats | None, cur: v1.ContainerStats) -> CpuInstStats | None:
    """Return the rate between two samples, or None without a first sample.

    Raise ValueError if the samples cannot be compared.
    """
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
    """Convert the specification to v2; it has limits only for the resources that the container has."""
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
