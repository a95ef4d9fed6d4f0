"""Export the statistics of each container as metrics with its labels.

Go: github.com/google/cadvisor/metrics/prometheus.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2
from pkg import klog
from pkg.apimachinery import clock
from pkg.component_base.metrics import COUNTER, GAUGE, new_family

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# A memory limit above this value means "unlimited": the kernel rounds its maximum.
_MAX_MEMORY = 1 << 62
_OPTIONS = v2.RequestOptions(count=1, recursive=True)

# A Value is a number, with the values of the metric's own labels.
Value = tuple[float, tuple[str, ...]]
LabelsFunc = Callable[[info.ContainerInfo], dict[str, str]]


class InfoProvider(Protocol):
    """Define what the collector needs from a source of statistics. Methods raise OSError or LookupError on failure."""

    def get_requested_containers_info(
        self, container_name: str, options: v2.RequestOptions
    ) -> Mapping[str, info.ContainerInfo]: ...

    def get_version_info(self) -> info.VersionInfo: ...


@dataclass(frozen=True, slots=True)
class _Metric:
    """Describe a metric: its name, and how its values are read from a sample."""

    name: str
    help: str
    type: str
    get_values: Callable[[info.ContainerStats], Iterable[Value]]
    extra_labels: tuple[str, ...] = ()
    condition: Callable[[info.ContainerSpec], bool] = lambda spec: True


def _one(name: str, help: str, type: str, value: Callable[[info.ContainerStats], float]) -> _Metric:
    """Return a metric with one value for each container."""
    return _Metric(name, help, type, lambda stats: [(value(stats), ())])


def _cfs(name: str, help: str, value: Callable[[info.CpuCFS], float]) -> _Metric:
    """Return a metric of containers that have a CPU quota."""
    return _Metric(
        name,
        help,
        COUNTER,
        lambda stats: [(value(stats.cpu.cfs), ())],
        condition=lambda spec: spec.cpu.quota != 0,
    )


def _fs(name: str, help: str, type: str, value: Callable[[info.FsStats], float]) -> _Metric:
    """Return a metric with one value for each file system."""
    return _Metric(name, help, type, lambda stats: [(value(fs), (fs.device,)) for fs in stats.filesystem], ("device",))


def _io(
    name: str,
    help: str,
    disks: Callable[[info.DiskIoStats], list[info.PerDiskStats]],
    operation: str,
    of_filesystem: Callable[[info.FsStats], float] | None = None,
    unit: float = 1,
    type: str = COUNTER,
) -> _Metric:
    """Return a metric with one value for each disk of the cgroup and each file system.

    The kernel's counts are divided by `unit`.
    """

    def values(stats: info.ContainerStats) -> Iterable[Value]:
        by_device = {disk.device: disk.stats.get(operation, 0) / unit for disk in disks(stats.disk_io)}
        if of_filesystem is not None:
            for fs in stats.filesystem:
                by_device.setdefault(fs.device, of_filesystem(fs))
        return [(value, (device,)) for device, value in by_device.items()]

    return _Metric(name, help, type, values, ("device",))


def _network(name: str, help: str, value: Callable[[info.InterfaceStats], float]) -> _Metric:
    """Return a metric with one value for each network interface."""
    return _Metric(
        name,
        help,
        COUNTER,
        lambda stats: [(value(interface), (interface.name,)) for interface in stats.network.interfaces],
        ("interface",),
    )


def _nothing(_: info.ContainerStats) -> float:
    """Return 0 for metrics that the Go kubelet exports without measuring them."""
    return 0


_CPU = (
    _one("container_cpu_user_seconds_total", "CPU time spent in user mode, in seconds.", COUNTER,
         lambda s: s.cpu.usage.user / 1e9),
    _one("container_cpu_system_seconds_total", "CPU time spent in the kernel, in seconds.", COUNTER,
         lambda s: s.cpu.usage.system / 1e9),
    _Metric("container_cpu_usage_seconds_total", "CPU time spent, in seconds.", COUNTER,
            lambda s: [(s.cpu.usage.total / 1e9, ("total",))] if s.cpu.usage.total > 0 else [], ("cpu",)),
    _cfs("container_cpu_cfs_periods_total", "Periods in which the CPU limit was enforced.", lambda c: c.periods),
    _cfs("container_cpu_cfs_throttled_periods_total", "Periods in which the container was throttled.",
         lambda c: c.throttled_periods),
    _cfs("container_cpu_cfs_throttled_seconds_total", "Seconds for which the container was throttled.",
         lambda c: c.throttled_time / 1e9),
    _cfs("container_cpu_cfs_burst_periods_total", "Periods in which the container exceeded its quota with a burst.",
         lambda c: c.bursts_periods),
    _cfs("container_cpu_cfs_burst_seconds_total", "Seconds of CPU time that bursts took.",
         lambda c: c.burst_time / 1e9),
    _one("container_cpu_load_average_10s", "Load average over 10 s; always 0.", GAUGE,
         _nothing),
    _one("container_cpu_load_d_average_10s", "Load average of uninterruptible tasks over 10 s; always 0.", GAUGE,
         _nothing),
    _Metric("container_tasks_state", "Tasks by state; always 0.", GAUGE,
            lambda s: [(0, (state,)) for state in ("iowaiting", "running", "sleeping", "stopped", "uninterruptible")],
            ("state",)),
)  # fmt: skip

_MEMORY = (
    _one("container_memory_cache", "Bytes of page cache.", GAUGE, lambda s: s.memory.cache),
    _one("container_memory_rss", "Bytes of anonymous memory and swap cache.", GAUGE, lambda s: s.memory.rss),
    _one("container_memory_kernel_usage", "Bytes that the kernel uses for the container.", GAUGE,
         lambda s: s.memory.kernel_usage),
    _one("container_memory_mapped_file", "Bytes of files that are mapped into memory.", GAUGE,
         lambda s: s.memory.mapped_file),
    _one("container_memory_swap", "Bytes in swap.", GAUGE, lambda s: s.memory.swap),
    _one("container_memory_failcnt", "How often the memory limit was reached.", COUNTER, lambda s: s.memory.failcnt),
    _one("container_memory_usage_bytes",
         "Bytes of memory in use, page cache included.", GAUGE,
         lambda s: s.memory.usage),
    _one("container_memory_max_usage_bytes", "Maximum bytes of memory in use.", GAUGE,
         lambda s: s.memory.max_usage),
    _one("container_memory_working_set_bytes", "Bytes of memory in use that cannot be reclaimed easily.", GAUGE,
         lambda s: s.memory.working_set),
    _one("container_memory_total_active_file_bytes", "Bytes of page cache that was used recently.", GAUGE,
         lambda s: s.memory.total_active_file),
    _one("container_memory_total_inactive_file_bytes", "Bytes of page cache that was not used recently.", GAUGE,
         lambda s: s.memory.total_inactive_file),
    _Metric("container_memory_failures_total", "Page faults, by kind and scope.", COUNTER,
            lambda s: [
                (s.memory.container_data.pgfault, ("pgfault", "container")),
                (s.memory.container_data.pgmajfault, ("pgmajfault", "container")),
                (s.memory.hierarchical_data.pgfault, ("pgfault", "hierarchy")),
                (s.memory.hierarchical_data.pgmajfault, ("pgmajfault", "hierarchy")),
            ],
            ("failure_type", "scope")),
    _one("container_oom_events_total", "Processes killed for lack of memory.", COUNTER,
         lambda s: s.oom_events),
)  # fmt: skip

_FILE_SYSTEMS = (
    _fs("container_fs_inodes_free", "Free inodes.", GAUGE, lambda fs: fs.inodes_free),
    _fs("container_fs_inodes_total", "Inodes, used and free.", GAUGE, lambda fs: fs.inodes),
    _fs("container_fs_limit_bytes", "Bytes that the file system holds.", GAUGE,
        lambda fs: fs.limit),
    _fs("container_fs_usage_bytes", "Bytes in use on the file system.", GAUGE,
        lambda fs: fs.usage),
    _fs("container_fs_io_time_weighted_seconds_total", "Time spent on I/O, weighted by the operations in progress.",
        COUNTER, lambda fs: fs.weighted_io_time / 1e9),
)  # fmt: skip

# Go treats the milliseconds of file system times as nanoseconds. This code repeats the error, so that the values of
# different nodes can be compared.
_DISKS = (
    _io("container_fs_reads_bytes_total", "Bytes read.", lambda d: d.io_service_bytes, "Read"),
    _io("container_fs_reads_total", "Completed reads.", lambda d: d.io_serviced, "Read",
        lambda fs: fs.reads_completed),
    _io("container_fs_sector_reads_total", "Sectors read.", lambda d: d.sectors, "Read",
        lambda fs: fs.sectors_read),
    _io("container_fs_reads_merged_total", "Merged reads.", lambda d: d.io_merged, "Read",
        lambda fs: fs.reads_merged),
    _io("container_fs_read_seconds_total", "Time spent reading.", lambda d: d.io_service_time,
        "Read", lambda fs: fs.read_time / 1e9, 1e9),
    _io("container_fs_writes_bytes_total", "Bytes written.", lambda d: d.io_service_bytes, "Write"),
    _io("container_fs_writes_total", "Completed writes.", lambda d: d.io_serviced, "Write",
        lambda fs: fs.writes_completed),
    _io("container_fs_sector_writes_total", "Sectors written.", lambda d: d.sectors,
        "Write", lambda fs: fs.sectors_written),
    _io("container_fs_writes_merged_total", "Merged writes.", lambda d: d.io_merged, "Write",
        lambda fs: fs.writes_merged),
    _io("container_fs_write_seconds_total", "Time spent writing.", lambda d: d.io_service_time,
        "Write", lambda fs: fs.write_time / 1e9, 1e9),
    _io("container_fs_io_current", "I/O operations in progress.", lambda d: d.io_queued, "Total",
        lambda fs: fs.io_in_progress, type=GAUGE),
    _io("container_fs_io_time_seconds_total", "Time in which I/O was in progress.",
        lambda d: d.io_service_time, "Total", lambda fs: fs.io_time / 1e9, 1e9),
    _io("container_fs_io_cost_usage_seconds_total", "Device time charged by the kernel's I/O cost model, in seconds.",
        lambda d: d.io_cost_usage,
        "Count", unit=1e6),
    _io("container_fs_io_cost_wait_seconds_total", "Seconds waited for device time by the kernel's I/O cost model.",
        lambda d: d.io_cost_wait,
        "Count", unit=1e6),
    _io("container_fs_io_cost_indebt_seconds_total", "Seconds in debt of device time by the kernel's I/O cost model.",
        lambda d: d.io_cost_indebt,
        "Count", unit=1e6),
    _io("container_fs_io_cost_indelay_seconds_total", "Seconds delayed for a debt by the kernel's I/O cost model.",
        lambda d: d.io_cost_indelay, "Count", unit=1e6),
    _Metric("container_blkio_device_usage_total", "Bytes by device and operation.", COUNTER,
            lambda s: [
                (value, (disk.device, str(disk.major), str(disk.minor), operation))
                for disk in s.disk_io.io_service_bytes
                for operation, value in disk.stats.items()
            ],
            ("device", "major", "minor", "operation")),
)  # fmt: skip

_NETWORK = (
    _network("container_network_receive_bytes_total", "Bytes received.", lambda i: i.rx_bytes),
    _network("container_network_receive_packets_total", "Packets received.",
             lambda i: i.rx_packets),
    _network("container_network_receive_packets_dropped_total",
             "Incoming packets that were dropped.", lambda i: i.rx_dropped),
    _network("container_network_receive_errors_total", "Errors in receiving.",
             lambda i: i.rx_errors),
    _network("container_network_transmit_bytes_total", "Bytes sent.", lambda i: i.tx_bytes),
    _network("container_network_transmit_packets_total", "Packets sent.",
             lambda i: i.tx_packets),
    _network("container_network_transmit_packets_dropped_total",
             "Outgoing packets that were dropped.", lambda i: i.tx_dropped),
    _network("container_network_transmit_errors_total",
             "Errors in sending.", lambda i: i.tx_errors),
)  # fmt: skip

_PROCESSES = (
    _one("container_processes", "Processes.", GAUGE,
         lambda s: s.processes.process_count),
    _one("container_file_descriptors", "Open file descriptors of all processes.", GAUGE,
         lambda s: s.processes.fd_count),
    _one("container_sockets", "Open sockets of all processes.", GAUGE, lambda s: s.processes.socket_count),
    _one("container_threads_max", "Maximum number of threads; 0 without a limit.",
         GAUGE, lambda s: s.processes.threads_max),
    _one("container_threads", "Threads.", GAUGE,
         lambda s: s.processes.threads_current),
    _Metric("container_ulimits_soft",
            "Soft limits of the first process; -1 without a limit.", GAUGE,
            lambda s: [(ulimit.soft_limit, (ulimit.name,)) for ulimit in s.processes.ulimits], ("ulimit",)),
    # The runtime does not check the health of a kubelet's containers, because the kubelet runs their probes.
    _one("container_health_state", "Health according to the runtime's own check; -1 without one.", GAUGE, lambda s: -1),
)  # fmt: skip

_PRESSURE = (
    _one("container_pressure_cpu_stalled_seconds_total",
         "Seconds in which all tasks waited for a CPU.", COUNTER,
         lambda s: s.cpu.psi.full.total / 1e6),
    _one("container_pressure_cpu_waiting_seconds_total",
         "Seconds in which some task waited for a CPU.", COUNTER,
         lambda s: s.cpu.psi.some.total / 1e6),
    _one("container_pressure_memory_stalled_seconds_total",
         "Seconds in which all tasks waited for memory.", COUNTER,
         lambda s: s.memory.psi.full.total / 1e6),
    _one("container_pressure_memory_waiting_seconds_total",
         "Seconds in which some task waited for memory.", COUNTER,
         lambda s: s.memory.psi.some.total / 1e6),
    _one("container_pressure_io_stalled_seconds_total",
         "Seconds in which all tasks waited for I/O.", COUNTER,
         lambda s: s.disk_io.psi.full.total / 1e6),
    _one("container_pressure_io_waiting_seconds_total",
         "Seconds in which some task waited for I/O.", COUNTER,
         lambda s: s.disk_io.psi.some.total / 1e6),
)  # fmt: skip

_METRICS = (*_CPU, *_MEMORY, *_FILE_SYSTEMS, *_DISKS, *_NETWORK, *_PROCESSES)

_SPEC_HELP = {
    "container_start_time_seconds": "When the container was started, in seconds since 1970.",
    "container_spec_cpu_period": "Period of the CPU quota, in microseconds.",
    "container_spec_cpu_quota": "CPU time in each period, in microseconds.",
    "container_spec_cpu_shares": "CPU weight of the container, in shares.",
    "container_spec_memory_limit_bytes": "Memory limit in bytes; 0 without a limit.",
    "container_spec_memory_swap_limit_bytes": "Limit of memory and swap in bytes; 0 without a limit.",
    "container_spec_memory_reservation_limit_bytes": "Reserved memory in bytes; 0 without a reservation.",
}


class PrometheusCollector:
    """Collect the metrics of all containers at each scrape of prometheus_client.

    `labels_func` returns a container's labels; all containers have the same label names.
    """

    def __init__(
        self,
        info_provider: InfoProvider,
        labels_func: LabelsFunc,
        include_pressure: bool,
        clock_: clock.Clock | None = None,
    ) -> None:
        self._info_provider = info_provider
        self._labels_func = labels_func
        self._metrics = (*_METRICS, *_PRESSURE) if include_pressure else _METRICS
        self._clock = clock_ or clock.RealClock()

    def describe(self) -> list[Metric]:
        """Return nothing, because the metrics are known only at the time of the scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        error = new_family("container_scrape_error", "Whether reading the statistics of containers failed.", GAUGE)
        failed = 0
        try:
            yield self._version()
        except OSError as err:
            klog.warning_s("Couldn't get version info", err=err)
            failed = 1
        try:
            containers = self._info_provider.get_requested_containers_info("/", _OPTIONS)
        except (OSError, LookupError, ValueError) as err:
            klog.warning_s("Couldn't get containers", err=err)
            containers, failed = {}, 1
        yield from self._containers(list(containers.values()))
        error.add_sample(error.name, {}, failed)
        yield error

    def _version(self) -> Metric:
        """Return the metric of the versions. Raise OSError."""
        version = self._info_provider.get_version_info()
        made = new_family(
            "cadvisor_version_info",
            "Always 1; its labels hold the versions of the kernel, the operating system and cAdvisor.",
            GAUGE,
        )
        labels = {
            "kernelVersion": version.kernel_version,
            "osVersion": version.container_os_version,
            "dockerVersion": "",
            "cadvisorVersion": version.cadvisor_version,
            "cadvisorRevision": version.cadvisor_revision,
        }
        made.add_sample(made.name, labels, 1)
        return made

    def _containers(self, containers: list[info.ContainerInfo]) -> Iterator[Metric]:
        labelled = sorted(
            ((self._labels_func(container), container) for container in containers),
            key=lambda pair: (pair[0].get("container", ""), pair[1].reference.name),
        )
        yield from _specs(labelled)
        yield self._last_seen(labelled)
        sampled = [
            (labels, container.spec, container.stats[-1], container.stats[-1].timestamp.timestamp())
            for labels, container in labelled
            if container.stats
        ]
        extended = _Extended()
        for metric in self._metrics:
            made = new_family(metric.name, metric.help, metric.type)
            for labels, spec, stats, timestamp in sampled:
                if metric.condition(spec):
                    for value, extra in metric.get_values(stats):
                        made.add_sample(metric.name, extended.of(labels, metric.extra_labels, extra), value, timestamp)
            yield made

    def _last_seen(self, labelled: list[tuple[dict[str, str], info.ContainerInfo]]) -> Metric:
        made = new_family("container_last_seen", "When the container was last seen, in seconds since 1970.", GAUGE)
        now = self._clock.now().timestamp()
        for labels, container in labelled:
            if container.stats:
                made.add_sample(made.name, labels, int(now), now)
        return made


class _Extended:
    """Extend containers' labels with further labels, and return the same dict for all samples with equal labels.

    The labels are then rendered only once. The container's own label dicts must outlive this object.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...], tuple[str, ...]], dict[str, str]] = {}

    def of(self, labels: dict[str, str], names: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str]:
        if not names:
            return labels
        key = (id(labels), names, values)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = labels | dict(zip(names, values, strict=True))
        return found


def _specs(labelled: list[tuple[dict[str, str], info.ContainerInfo]]) -> Iterator[Metric]:
    """Yield the metrics of the containers' limits, which have no timestamp."""
    families = {name: new_family(name, help, GAUGE) for name, help in _SPEC_HELP.items()}
    for labels, container in labelled:
        for name, value in _spec_values(container.spec).items():
            families[name].add_sample(name, labels, value)
    yield from families.values()


def _spec_values(spec: info.ContainerSpec) -> dict[str, float]:
    values: dict[str, float] = {"container_start_time_seconds": int(spec.creation_time.timestamp())}
    if spec.has_cpu:
        values["container_spec_cpu_period"] = spec.cpu.period
        values["container_spec_cpu_shares"] = spec.cpu.limit
        if spec.cpu.quota:
            values["container_spec_cpu_quota"] = spec.cpu.quota
    if spec.has_memory:
        values["container_spec_memory_limit_bytes"] = _limit(spec.memory.limit)
        values["container_spec_memory_swap_limit_bytes"] = _limit(spec.memory.swap_limit)
        values["container_spec_memory_reservation_limit_bytes"] = _limit(spec.memory.reservation)
    return values


def _limit(value: int) -> int:
    """Return the limit, or 0 if the cgroup has no limit."""
    return 0 if value > _MAX_MEMORY else value
