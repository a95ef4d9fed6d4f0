"""The figures of each container, as metrics with its labels.

Go: github.com/google/cadvisor/metrics/prometheus.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2
from kubelet.cadvisor.metrics.families import COUNTER, GAUGE, family
from pkg import klog
from pkg.apimachinery import clock

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# What is more, is no limit: the kernel rounds.
_MAX_MEMORY = 1 << 62
_OPTIONS = v2.RequestOptions(count=1, recursive=True)

# A value, and the values of the labels that are the metric's own.
Value = tuple[float, tuple[str, ...]]
LabelsFunc = Callable[[info.ContainerInfo], dict[str, str]]


class InfoProvider(Protocol):
    """Where the figures come from. Methods raise OSError, LookupError when they cannot be had."""

    def get_requested_containers_info(
        self, container_name: str, options: v2.RequestOptions
    ) -> Mapping[str, info.ContainerInfo]: ...

    def get_version_info(self) -> info.VersionInfo: ...


@dataclass(frozen=True, slots=True)
class _Metric:
    """A kind of figure: what it is called, and how its values come from a sample."""

    name: str
    help: str
    type: str
    get_values: Callable[[info.ContainerStats], Iterable[Value]]
    extra_labels: tuple[str, ...] = ()
    condition: Callable[[info.ContainerSpec], bool] = lambda spec: True


def _one(name: str, help: str, type: str, value: Callable[[info.ContainerStats], float]) -> _Metric:
    """A metric with one value for each container."""
    return _Metric(name, help, type, lambda stats: [(value(stats), ())])


def _cfs(name: str, help: str, value: Callable[[info.CpuCFS], float]) -> _Metric:
    """A metric of those containers that have a quota."""
    return _Metric(
        name,
        help,
        COUNTER,
        lambda stats: [(value(stats.cpu.cfs), ())],
        condition=lambda spec: spec.cpu.quota != 0,
    )


def _fs(name: str, help: str, type: str, value: Callable[[info.FsStats], float]) -> _Metric:
    """A metric with one value for each file system."""
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
    """A metric with one value for each disk that the cgroup knows of, or the file system.

    unit is how many of what the kernel counts make one of what is shown.
    """

    def values(stats: info.ContainerStats) -> Iterable[Value]:
        by_device = {disk.device: disk.stats.get(operation, 0) / unit for disk in disks(stats.disk_io)}
        if of_filesystem is not None:
            for fs in stats.filesystem:
                by_device.setdefault(fs.device, of_filesystem(fs))
        return [(value, (device,)) for device, value in by_device.items()]

    return _Metric(name, help, type, values, ("device",))


def _network(name: str, help: str, value: Callable[[info.InterfaceStats], float]) -> _Metric:
    """A metric with one value for each interface."""
    return _Metric(
        name,
        help,
        COUNTER,
        lambda stats: [(value(interface), (interface.name,)) for interface in stats.network.interfaces],
        ("interface",),
    )


def _nothing(_: info.ContainerStats) -> float:
    """What a kubelet's cAdvisor shows without counting it."""
    return 0


_CPU = (
    _one("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", COUNTER,
         lambda s: s.cpu.usage.user / 1e9),
    _one("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", COUNTER,
         lambda s: s.cpu.usage.system / 1e9),
    _Metric("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", COUNTER,
            lambda s: [(s.cpu.usage.total / 1e9, ("total",))] if s.cpu.usage.total > 0 else [], ("cpu",)),
    _cfs("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", lambda c: c.periods),
    _cfs("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.",
         lambda c: c.throttled_periods),
    _cfs("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.",
         lambda c: c.throttled_time / 1e9),
    _cfs("container_cpu_cfs_burst_periods_total", "Number of periods when burst occurs.", lambda c: c.bursts_periods),
    _cfs("container_cpu_cfs_burst_seconds_total", "Total time duration the container has been bursted.",
         lambda c: c.burst_time / 1e9),
    _one("container_cpu_load_average_10s", "Value of container cpu load average over the last 10 seconds.", GAUGE,
         _nothing),
    _one("container_cpu_load_d_average_10s", "Value of container cpu load.d average over the last 10 seconds.", GAUGE,
         _nothing),
    _Metric("container_tasks_state", "Number of tasks in given state", GAUGE,
            lambda s: [(0, (state,)) for state in ("iowaiting", "running", "sleeping", "stopped", "uninterruptible")],
            ("state",)),
)  # fmt: skip

_MEMORY = (
    _one("container_memory_cache", "Number of bytes of page cache memory.", GAUGE, lambda s: s.memory.cache),
    _one("container_memory_rss", "Size of RSS in bytes.", GAUGE, lambda s: s.memory.rss),
    _one("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", GAUGE,
         lambda s: s.memory.kernel_usage),
    _one("container_memory_mapped_file", "Size of memory mapped files in bytes.", GAUGE,
         lambda s: s.memory.mapped_file),
    _one("container_memory_swap", "Container swap usage in bytes.", GAUGE, lambda s: s.memory.swap),
    _one("container_memory_failcnt", "Number of memory usage hits limits", COUNTER, lambda s: s.memory.failcnt),
    _one("container_memory_usage_bytes",
         "Current memory usage in bytes, including all memory regardless of when it was accessed", GAUGE,
         lambda s: s.memory.usage),
    _one("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", GAUGE,
         lambda s: s.memory.max_usage),
    _one("container_memory_working_set_bytes", "Current working set in bytes.", GAUGE, lambda s: s.memory.working_set),
    _one("container_memory_total_active_file_bytes", "Current total active file in bytes.", GAUGE,
         lambda s: s.memory.total_active_file),
    _one("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.", GAUGE,
         lambda s: s.memory.total_inactive_file),
    _Metric("container_memory_failures_total", "Cumulative count of memory allocation failures.", COUNTER,
            lambda s: [
                (s.memory.container_data.pgfault, ("pgfault", "container")),
                (s.memory.container_data.pgmajfault, ("pgmajfault", "container")),
                (s.memory.hierarchical_data.pgfault, ("pgfault", "hierarchy")),
                (s.memory.hierarchical_data.pgmajfault, ("pgmajfault", "hierarchy")),
            ],
            ("failure_type", "scope")),
    _one("container_oom_events_total", "Count of out of memory events observed for the container", COUNTER,
         lambda s: s.oom_events),
)  # fmt: skip

_FILE_SYSTEMS = (
    _fs("container_fs_inodes_free", "Number of available Inodes", GAUGE, lambda fs: fs.inodes_free),
    _fs("container_fs_inodes_total", "Number of Inodes", GAUGE, lambda fs: fs.inodes),
    _fs("container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", GAUGE,
        lambda fs: fs.limit),
    _fs("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", GAUGE,
        lambda fs: fs.usage),
    _fs("container_fs_io_time_weighted_seconds_total", "Cumulative weighted I/O time in seconds", COUNTER,
        lambda fs: fs.weighted_io_time / 1e9),
)  # fmt: skip

# The times of file systems are milliseconds that Go takes for nanoseconds. Whoever compares nodes gets the same.
_DISKS = (
    _io("container_fs_reads_bytes_total", "Cumulative count of bytes read", lambda d: d.io_service_bytes, "Read"),
    _io("container_fs_reads_total", "Cumulative count of reads completed", lambda d: d.io_serviced, "Read",
        lambda fs: fs.reads_completed),
    _io("container_fs_sector_reads_total", "Cumulative count of sector reads completed", lambda d: d.sectors, "Read",
        lambda fs: fs.sectors_read),
    _io("container_fs_reads_merged_total", "Cumulative count of reads merged", lambda d: d.io_merged, "Read",
        lambda fs: fs.reads_merged),
    _io("container_fs_read_seconds_total", "Cumulative count of seconds spent reading", lambda d: d.io_service_time,
        "Read", lambda fs: fs.read_time / 1e9, 1e9),
    _io("container_fs_writes_bytes_total", "Cumulative count of bytes written", lambda d: d.io_service_bytes, "Write"),
    _io("container_fs_writes_total", "Cumulative count of writes completed", lambda d: d.io_serviced, "Write",
        lambda fs: fs.writes_completed),
    _io("container_fs_sector_writes_total", "Cumulative count of sector writes completed", lambda d: d.sectors,
        "Write", lambda fs: fs.sectors_written),
    _io("container_fs_writes_merged_total", "Cumulative count of writes merged", lambda d: d.io_merged, "Write",
        lambda fs: fs.writes_merged),
    _io("container_fs_write_seconds_total", "Cumulative count of seconds spent writing", lambda d: d.io_service_time,
        "Write", lambda fs: fs.write_time / 1e9, 1e9),
    _io("container_fs_io_current", "Number of I/Os currently in progress", lambda d: d.io_queued, "Total",
        lambda fs: fs.io_in_progress, type=GAUGE),
    _io("container_fs_io_time_seconds_total", "Cumulative count of seconds spent doing I/Os",
        lambda d: d.io_service_time, "Total", lambda fs: fs.io_time / 1e9, 1e9),
    _io("container_fs_io_cost_usage_seconds_total", "Cumulative IOCost usage in seconds", lambda d: d.io_cost_usage,
        "Count", unit=1e6),
    _io("container_fs_io_cost_wait_seconds_total", "Cumulative IOCost wait in seconds", lambda d: d.io_cost_wait,
        "Count", unit=1e6),
    _io("container_fs_io_cost_indebt_seconds_total", "Cumulative IOCost debt in seconds", lambda d: d.io_cost_indebt,
        "Count", unit=1e6),
    _io("container_fs_io_cost_indelay_seconds_total", "Cumulative IOCost delay in seconds",
        lambda d: d.io_cost_indelay, "Count", unit=1e6),
    _Metric("container_blkio_device_usage_total", "Blkio Device bytes usage", COUNTER,
            lambda s: [
                (value, (disk.device, str(disk.major), str(disk.minor), operation))
                for disk in s.disk_io.io_service_bytes
                for operation, value in disk.stats.items()
            ],
            ("device", "major", "minor", "operation")),
)  # fmt: skip

_NETWORK = (
    _network("container_network_receive_bytes_total", "Cumulative count of bytes received", lambda i: i.rx_bytes),
    _network("container_network_receive_packets_total", "Cumulative count of packets received",
             lambda i: i.rx_packets),
    _network("container_network_receive_packets_dropped_total",
             "Cumulative count of packets dropped while receiving", lambda i: i.rx_dropped),
    _network("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving",
             lambda i: i.rx_errors),
    _network("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", lambda i: i.tx_bytes),
    _network("container_network_transmit_packets_total", "Cumulative count of packets transmitted",
             lambda i: i.tx_packets),
    _network("container_network_transmit_packets_dropped_total",
             "Cumulative count of packets dropped while transmitting", lambda i: i.tx_dropped),
    _network("container_network_transmit_errors_total",
             "Cumulative count of errors encountered while transmitting", lambda i: i.tx_errors),
)  # fmt: skip

_PROCESSES = (
    _one("container_processes", "Number of processes running inside the container.", GAUGE,
         lambda s: s.processes.process_count),
    _one("container_file_descriptors", "Number of open file descriptors for the container.", GAUGE,
         lambda s: s.processes.fd_count),
    _one("container_sockets", "Number of open sockets for the container.", GAUGE, lambda s: s.processes.socket_count),
    _one("container_threads_max", "Maximum number of threads allowed inside the container, infinity if value is zero",
         GAUGE, lambda s: s.processes.threads_max),
    _one("container_threads", "Number of threads running inside the container", GAUGE,
         lambda s: s.processes.threads_current),
    _Metric("container_ulimits_soft",
            "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice", GAUGE,
            lambda s: [(ulimit.soft_limit, (ulimit.name,)) for ulimit in s.processes.ulimits], ("ulimit",)),
    # Containers of a kubelet have probes, and no check of the runtime's.
    _one("container_health_state", "The result of the container's health check", GAUGE, lambda s: -1),
)  # fmt: skip

_PRESSURE = (
    _one("container_pressure_cpu_stalled_seconds_total",
         "Total time duration no tasks in the container could make progress due to CPU congestion.", COUNTER,
         lambda s: s.cpu.psi.full.total / 1e6),
    _one("container_pressure_cpu_waiting_seconds_total",
         "Total time duration tasks in the container have waited due to CPU congestion.", COUNTER,
         lambda s: s.cpu.psi.some.total / 1e6),
    _one("container_pressure_memory_stalled_seconds_total",
         "Total time duration no tasks in the container could make progress due to memory congestion.", COUNTER,
         lambda s: s.memory.psi.full.total / 1e6),
    _one("container_pressure_memory_waiting_seconds_total",
         "Total time duration tasks in the container have waited due to memory congestion.", COUNTER,
         lambda s: s.memory.psi.some.total / 1e6),
    _one("container_pressure_io_stalled_seconds_total",
         "Total time duration no tasks in the container could make progress due to IO congestion.", COUNTER,
         lambda s: s.disk_io.psi.full.total / 1e6),
    _one("container_pressure_io_waiting_seconds_total",
         "Total time duration tasks in the container have waited due to IO congestion.", COUNTER,
         lambda s: s.disk_io.psi.some.total / 1e6),
)  # fmt: skip

_METRICS = (*_CPU, *_MEMORY, *_FILE_SYSTEMS, *_DISKS, *_NETWORK, *_PROCESSES)

_SPEC_HELP = {
    "container_start_time_seconds": "Start time of the container since unix epoch in seconds.",
    "container_spec_cpu_period": "CPU period of the container.",
    "container_spec_cpu_quota": "CPU quota of the container.",
    "container_spec_cpu_shares": "CPU share of the container.",
    "container_spec_memory_limit_bytes": "Memory limit for the container.",
    "container_spec_memory_swap_limit_bytes": "Memory swap limit for the container.",
    "container_spec_memory_reservation_limit_bytes": "Memory reservation limit for the container.",
}


class PrometheusCollector:
    """A collector of prometheus_client: asks for all containers at each scrape.

    labels_func gives the labels of a container, the same ones of each.
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
        """Nothing: what there will be is known when it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        error = family(
            "container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", GAUGE
        )
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
        """Raises OSError."""
        version = self._info_provider.get_version_info()
        made = family(
            "cadvisor_version_info",
            "A metric with a constant '1' value labeled by kernel version, OS version, docker version, "
            "cadvisor version & cadvisor revision.",
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
            made = family(metric.name, metric.help, metric.type)
            for labels, spec, stats, timestamp in sampled:
                if metric.condition(spec):
                    for value, extra in metric.get_values(stats):
                        made.add_sample(metric.name, extended.of(labels, metric.extra_labels, extra), value, timestamp)
            yield made

    def _last_seen(self, labelled: list[tuple[dict[str, str], info.ContainerInfo]]) -> Metric:
        made = family("container_last_seen", "Last time a container was seen by the exporter", GAUGE)
        now = self._clock.now().timestamp()
        for labels, container in labelled:
            if container.stats:
                made.add_sample(made.name, labels, int(now), now)
        return made


class _Extended:
    """Labels with more of them: one dict for all samples that have the same, whose text is then worked out once.

    The labels are those of containers, which outlive this.
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
    """What containers may have: no moment goes with it."""
    families = {name: family(name, help, GAUGE) for name, help in _SPEC_HELP.items()}
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
    """0 when there is none."""
    return 0 if value > _MAX_MEMORY else value
