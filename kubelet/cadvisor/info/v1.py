"""Define the statistics of a container and of the machine in the form in which they are collected.

Go: github.com/google/cadvisor/info/v1 (container.go, machine.go)
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

_NEVER = datetime.fromtimestamp(0, UTC)


class CpuSpec(msgspec.Struct):
    """Hold the CPU limits of a cgroup.

    `limit` is in shares of cgroup version 1; quota and period are in microseconds. A quota of 0 means
    that the cgroup has no quota.
    """

    limit: int = 0
    quota: int = 0
    period: int = 0


class MemorySpec(msgspec.Struct):
    """Hold the memory limits of a cgroup, in bytes; 2**64 - 1 means "unlimited"."""

    limit: int = 0
    reservation: int = 0
    swap_limit: int = 0


class ProcessSpec(msgspec.Struct):
    """Hold the maximum number of tasks of a cgroup; 0 means "unlimited"."""

    limit: int = 0


class ContainerSpec(msgspec.Struct):
    """Describe a container and which statistics it has."""

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
    """Identify a container by its cgroup's name, which is unique on the machine, and by its names in the runtime."""

    name: str
    id: str = ""
    aliases: list[str] = msgspec.field(default_factory=list)
    # This is the name of the runtime, within which the aliases are unique.
    namespace: str = ""


class PSIData(msgspec.Struct):
    """Hold how long tasks waited: in total, and on average over the last 10, 60 or 300 seconds.

    The total is in microseconds, the averages are percentages.
    """

    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PSIStats(msgspec.Struct):
    """Hold the pressure on one resource: the time when all tasks waited (full) and when at least one did (some)."""

    full: PSIData = msgspec.field(default_factory=PSIData)
    some: PSIData = msgspec.field(default_factory=PSIData)


class CpuUsage(msgspec.Struct):
    """Hold the CPU time since the container's creation, in nanoseconds."""

    total: int = 0
    per_cpu: list[int] = msgspec.field(default_factory=list)
    user: int = 0
    system: int = 0


class CpuCFS(msgspec.Struct):
    """Count how often, and for how many nanoseconds, the quota throttled the container."""

    periods: int = 0
    throttled_periods: int = 0
    throttled_time: int = 0
    bursts_periods: int = 0
    burst_time: int = 0


class CpuStats(msgspec.Struct):
    """Hold a container's CPU statistics."""

    usage: CpuUsage = msgspec.field(default_factory=CpuUsage)
    cfs: CpuCFS = msgspec.field(default_factory=CpuCFS)
    # The value is the number of runnable tasks, times 1000. It is always 0, as in the Go kubelet.
    load_average: int = 0
    psi: PSIStats = msgspec.field(default_factory=PSIStats)


class PerDiskStats(msgspec.Struct):
    """Hold one kind of statistics of one disk, by operation ("Read", "Write", ...)."""

    device: str = ""
    major: int = 0
    minor: int = 0
    stats: dict[str, int] = msgspec.field(default_factory=dict)


class DiskIoStats(msgspec.Struct):
    """Hold a container's disk statistics; a list is empty if the kernel does not offer it."""

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
    """Count the page faults since the container's creation."""

    pgfault: int = 0
    pgmajfault: int = 0


class MemoryStats(msgspec.Struct):
    """Hold a container's memory usage in bytes.

    `working_set` is the usage without inactive file pages: the memory that the kernel cannot reclaim easily.
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
    # These fields count the page faults of the cgroup itself, and of the cgroup with all its descendants.
    container_data: MemoryStatsMemoryData = msgspec.field(default_factory=MemoryStatsMemoryData)
    hierarchical_data: MemoryStatsMemoryData = msgspec.field(default_factory=MemoryStatsMemoryData)
    psi: PSIStats = msgspec.field(default_factory=PSIStats)


class InterfaceStats(msgspec.Struct):
    """Count the traffic of a network interface since it went up."""

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
    """Hold the interfaces of a network namespace."""

    interfaces: list[InterfaceStats] = msgspec.field(default_factory=list)


class FsStats(msgspec.Struct):
    """Hold the usage of a file system by a container or by the machine, and the operations of its disk.

    Sizes are in bytes, times in milliseconds, and sectors have 512 bytes. `limit` is the capacity. `base_usage` is the
    usage of a container's writable layer; `usage` includes its logs. For a container, `inodes` counts the used inodes.
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
    """Hold a resource limit of a container's first process; -1 means "unlimited"."""

    name: str
    soft_limit: int
    hard_limit: int


class ProcessStats(msgspec.Struct):
    """Count a container's processes, threads and open files. `threads_max` is 0 if there is no limit."""

    process_count: int = 0
    fd_count: int = 0
    socket_count: int = 0
    threads_current: int = 0
    threads_max: int = 0
    ulimits: list[UlimitSpec] = msgspec.field(default_factory=list)


class ContainerStats(msgspec.Struct):
    """Hold all statistics of a container at one moment. Its ContainerSpec says which of them are valid."""

    timestamp: datetime = _NEVER
    # `steady` is the same moment on the steady clock. Ages and rates use it, because the wall clock may be set
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
    """Hold a container's identity, its specification and its statistics, the newest last."""

    reference: ContainerReference
    spec: ContainerSpec = msgspec.field(default_factory=ContainerSpec)
    stats: list[ContainerStats] = msgspec.field(default_factory=list)
    subcontainers: list[ContainerReference] = msgspec.field(default_factory=list)


class HugePagesInfo(msgspec.Struct, frozen=True):
    """Count the machine's huge pages of one size; the size is in KiB."""

    page_size: int
    num_pages: int


class DiskInfo(msgspec.Struct, frozen=True):
    """Describe a block device; its size is in bytes."""

    name: str
    major: int
    minor: int
    size: int


class MemoryInfo(msgspec.Struct, frozen=True):
    """Hold the total size, in bytes, and the number of the memory modules of one kind."""

    capacity: int = 0
    dimm_count: int = 0


class Cache(msgspec.Struct, frozen=True):
    """Describe a CPU cache; its size is in bytes.

    The type is Data, Instruction or Unified. Level 1 is the cache nearest to the core.
    """

    id: int = 0
    size: int = 0
    type: str = ""
    level: int = 0


class Core(msgspec.Struct, frozen=True):
    """Describe a CPU core, whose id is unique in its socket. `threads` holds the ids of its logical CPUs.

    `uncore_caches` are the caches that it shares with some cores of its NUMA node.
    """

    id: int = 0
    threads: tuple[int, ...] = ()
    caches: tuple[Cache, ...] = ()
    uncore_caches: tuple[Cache, ...] = ()
    socket_id: int = 0


class Node(msgspec.Struct, frozen=True):
    """Describe a NUMA node.

    The memory is in bytes. `caches` are those that the node's cores share. `distances` lists the distance to each node;
    a node's distance to itself is 10.
    """

    id: int = 0
    memory: int = 0
    huge_pages: tuple[HugePagesInfo, ...] = ()
    cores: tuple[Core, ...] = ()
    caches: tuple[Cache, ...] = ()
    distances: tuple[int, ...] = ()


class MachineInfo(msgspec.Struct, frozen=True):
    """Describe the machine. Memory sizes are in bytes."""

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
    # The keys are the kinds of memory modules. The dict is empty if the kernel does not report them, as on virtual
    # machines.
    memory_by_type: dict[str, MemoryInfo] = {}


class VersionInfo(msgspec.Struct, frozen=True):
    """Hold the versions of the kernel and of the operating system."""

    kernel_version: str = ""
    container_os_version: str = ""
    cadvisor_version: str = ""
    cadvisor_revision: str = ""
