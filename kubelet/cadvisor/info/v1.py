"""Figures as they are collected: one container's, and the machine's.

Go: github.com/google/cadvisor/info/v1 (container.go, machine.go)
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

_NEVER = datetime.fromtimestamp(0, UTC)


class CpuSpec(msgspec.Struct):
    """What a cgroup may have of the processors.

    limit is in shares of version 1; quota and period in microseconds, quota 0 when there is none.
    """

    limit: int = 0
    quota: int = 0
    period: int = 0


class MemorySpec(msgspec.Struct):
    """What a cgroup may have of memory, in bytes; 2**64 - 1 when nothing limits it."""

    limit: int = 0
    reservation: int = 0
    swap_limit: int = 0


class ProcessSpec(msgspec.Struct):
    """How many tasks a cgroup may have; 0 when nothing limits them."""

    limit: int = 0


class ContainerSpec(msgspec.Struct):
    """What a container is made of, and which of the figures it has."""

    creation_time: datetime = _NEVER
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    has_cpu: bool = False
    cpu: CpuSpec = msgspec.field(default_factory=CpuSpec)
    has_memory: bool = False
    memory: MemorySpec = msgspec.field(default_factory=MemorySpec)
    has_network: bool = False
    has_processes: bool = False
    processes: ProcessSpec = msgspec.field(default_factory=ProcessSpec)
    has_filesystem: bool = False
    has_disk_io: bool = False
    image: str = ""


class ContainerReference(msgspec.Struct):
    """A container by its cgroup's name, which is unique on the machine, and by its names in its runtime."""

    name: str
    id: str = ""
    aliases: list[str] = msgspec.field(default_factory=list)
    # Where the aliases are unique: the name of the runtime.
    namespace: str = ""


class PSIData(msgspec.Struct):
    """How long tasks waited: total in microseconds, the averages in percent of the last so many seconds."""

    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PSIStats(msgspec.Struct):
    """Pressure on one resource: all tasks waited (full), at least one did (some)."""

    full: PSIData = msgspec.field(default_factory=PSIData)
    some: PSIData = msgspec.field(default_factory=PSIData)


class CpuUsage(msgspec.Struct):
    """Processor time since the container was made, in nanoseconds."""

    total: int = 0
    per_cpu: list[int] = msgspec.field(default_factory=list)
    user: int = 0
    system: int = 0


class CpuCFS(msgspec.Struct):
    """How often and how long (nanoseconds) the quota stopped the container."""

    periods: int = 0
    throttled_periods: int = 0
    throttled_time: int = 0
    bursts_periods: int = 0
    burst_time: int = 0


class CpuStats(msgspec.Struct):
    """What a container had of the processors."""

    usage: CpuUsage = msgspec.field(default_factory=CpuUsage)
    cfs: CpuCFS = msgspec.field(default_factory=CpuCFS)
    # A thousand times the number of runnable tasks; always 0 here, as in a kubelet's cAdvisor.
    load_average: int = 0
    psi: PSIStats = msgspec.field(default_factory=PSIStats)


class PerDiskStats(msgspec.Struct):
    """One kind of figure of one disk, by operation ("Read", "Write", ...)."""

    device: str = ""
    major: int = 0
    minor: int = 0
    stats: dict[str, int] = msgspec.field(default_factory=dict)


class DiskIoStats(msgspec.Struct):
    """What a container read and wrote; the lists that a kernel does not offer are empty."""

    io_service_bytes: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_serviced: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_queued: list[PerDiskStats] = msgspec.field(default_factory=list)
    sectors: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_service_time: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_wait_time: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_merged: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_time: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_cost_usage: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_cost_wait: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_cost_indebt: list[PerDiskStats] = msgspec.field(default_factory=list)
    io_cost_indelay: list[PerDiskStats] = msgspec.field(default_factory=list)
    psi: PSIStats = msgspec.field(default_factory=PSIStats)


class MemoryStatsMemoryData(msgspec.Struct):
    """Page faults since the container was made."""

    pgfault: int = 0
    pgmajfault: int = 0


class MemoryStats(msgspec.Struct):
    """What a container has of memory, in bytes.

    working_set is the usage without the file pages that were not used lately: what the kernel cannot take back easily.
    """

    usage: int = 0
    max_usage: int = 0
    cache: int = 0
    rss: int = 0
    swap: int = 0
    mapped_file: int = 0
    working_set: int = 0
    total_active_file: int = 0
    total_inactive_file: int = 0
    failcnt: int = 0
    kernel_usage: int = 0
    # Of the cgroup alone, and of all below it too.
    container_data: MemoryStatsMemoryData = msgspec.field(default_factory=MemoryStatsMemoryData)
    hierarchical_data: MemoryStatsMemoryData = msgspec.field(default_factory=MemoryStatsMemoryData)
    psi: PSIStats = msgspec.field(default_factory=PSIStats)


class InterfaceStats(msgspec.Struct):
    """What went through a network interface since it is up."""

    name: str = ""
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


class NetworkStats(msgspec.Struct):
    """The interfaces of a network namespace."""

    interfaces: list[InterfaceStats] = msgspec.field(default_factory=list)


class FsStats(msgspec.Struct):
    """What a container, or the machine, uses of a file system: bytes, and operations of the disk below it.

    Times are milliseconds; sectors are of 512 bytes. limit is the capacity. base_usage is that of a container's
    writable layer, and usage counts its logs too. For a container inodes counts those in use.
    """

    device: str = ""
    type: str = ""
    limit: int = 0
    usage: int = 0
    base_usage: int = 0
    available: int = 0
    has_inodes: bool = False
    inodes: int = 0
    inodes_free: int = 0
    reads_completed: int = 0
    reads_merged: int = 0
    sectors_read: int = 0
    read_time: int = 0
    writes_completed: int = 0
    writes_merged: int = 0
    sectors_written: int = 0
    write_time: int = 0
    io_in_progress: int = 0
    io_time: int = 0
    weighted_io_time: int = 0


class UlimitSpec(msgspec.Struct):
    """A limit of a container's first process; -1 when there is none."""

    name: str
    soft_limit: int
    hard_limit: int


class ProcessStats(msgspec.Struct):
    """Processes, threads, and what they have open. threads_max is 0 when nothing limits the threads."""

    process_count: int = 0
    fd_count: int = 0
    socket_count: int = 0
    threads_current: int = 0
    threads_max: int = 0
    ulimits: list[UlimitSpec] = msgspec.field(default_factory=list)


class ContainerStats(msgspec.Struct):
    """All figures of a container at one moment. Which of them mean something, its ContainerSpec says."""

    timestamp: datetime = _NEVER
    # The same moment by the steady clock. Ages and rates come from this reading, because the time of day may be set
    # meanwhile.
    steady: datetime = _NEVER
    cpu: CpuStats = msgspec.field(default_factory=CpuStats)
    disk_io: DiskIoStats = msgspec.field(default_factory=DiskIoStats)
    memory: MemoryStats = msgspec.field(default_factory=MemoryStats)
    network: NetworkStats = msgspec.field(default_factory=NetworkStats)
    filesystem: list[FsStats] = msgspec.field(default_factory=list)
    processes: ProcessStats = msgspec.field(default_factory=ProcessStats)
    oom_events: int = 0


class ContainerInfo(msgspec.Struct):
    """A container: who it is, what it is made of, and its figures, the newest last."""

    reference: ContainerReference
    spec: ContainerSpec = msgspec.field(default_factory=ContainerSpec)
    stats: list[ContainerStats] = msgspec.field(default_factory=list)
    subcontainers: list[ContainerReference] = msgspec.field(default_factory=list)


class HugePagesInfo(msgspec.Struct, frozen=True):
    """How many huge pages of a size the machine has; the size in KiB."""

    page_size: int
    num_pages: int


class DiskInfo(msgspec.Struct, frozen=True):
    """A block device; size in bytes."""

    name: str
    major: int
    minor: int
    size: int


class MemoryInfo(msgspec.Struct, frozen=True):
    """Memory modules of one kind: bytes of all, and how many."""

    capacity: int = 0
    dimm_count: int = 0


class Cache(msgspec.Struct, frozen=True):
    """A cache of processors; size in bytes. type is Data, Instruction or Unified; 1 is the level next to the core."""

    id: int = 0
    size: int = 0
    type: str = ""
    level: int = 0


class Core(msgspec.Struct, frozen=True):
    """A core: its number is unique in its socket. Threads are the numbers of its processors.

    uncore_caches are those that it shares with some of its node's cores.
    """

    id: int = 0
    threads: tuple[int, ...] = ()
    caches: tuple[Cache, ...] = ()
    uncore_caches: tuple[Cache, ...] = ()
    socket_id: int = 0


class Node(msgspec.Struct, frozen=True):
    """A NUMA node: memory in bytes, caches that all its cores share, distances to all nodes (10 is here)."""

    id: int = 0
    memory: int = 0
    huge_pages: tuple[HugePagesInfo, ...] = ()
    cores: tuple[Core, ...] = ()
    caches: tuple[Cache, ...] = ()
    distances: tuple[int, ...] = ()


class MachineInfo(msgspec.Struct, frozen=True):
    """What the machine has. Bytes where it says memory."""

    num_cores: int
    memory_capacity: int
    swap_capacity: int = 0
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    huge_pages: tuple[HugePagesInfo, ...] = ()
    num_physical_cores: int = 0
    num_sockets: int = 0
    topology: tuple[Node, ...] = ()
    # By kind; empty where the kernel does not tell, as on virtual machines.
    memory_by_type: dict[str, MemoryInfo] = {}


class VersionInfo(msgspec.Struct, frozen=True):
    """Which kernel runs, and which system it was made for, in the system's own words."""

    kernel_version: str = ""
    container_os_version: str = ""
    cadvisor_version: str = ""
    cadvisor_revision: str = ""
