"""What /stats/summary shows.

Sums since a start, not rates, but for usage_nano_cores. None is what nobody can tell. Times keep their fractions of a
second, which /metrics/resource shows; `encode_json` leaves them out, as JSON of Go does.

Go: k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go
"""

from __future__ import annotations

import datetime

import msgspec

from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec

__all__ = [
    "METRIC_CUMULATIVE",
    "METRIC_DELTA",
    "METRIC_GAUGE",
    "SYSTEM_CONTAINER_KUBELET",
    "SYSTEM_CONTAINER_MISC",
    "SYSTEM_CONTAINER_PODS",
    "SYSTEM_CONTAINER_RUNTIME",
    "AcceleratorStats",
    "CPUStats",
    "ContainerStats",
    "FsStats",
    "IOStats",
    "InterfaceStats",
    "MemoryStats",
    "NetworkStats",
    "NodeStats",
    "PSIData",
    "PSIStats",
    "PVCReference",
    "PodReference",
    "PodStats",
    "ProcessStats",
    "RlimitStats",
    "RuntimeStats",
    "Summary",
    "SwapStats",
    "UserDefinedMetric",
    "VolumeHealthStats",
    "VolumeStats",
    "encode_json",
]

# Names of the cgroups that are no pods': the kubelet's own, the runtime's, of all other processes, and above all pods.
SYSTEM_CONTAINER_KUBELET = "kubelet"
SYSTEM_CONTAINER_RUNTIME = "runtime"
SYSTEM_CONTAINER_MISC = "misc"
SYSTEM_CONTAINER_PODS = "pods"

# How the value of a metric that a container exposes is to be read.
METRIC_GAUGE = "gauge"
METRIC_CUMULATIVE = "cumulative"
METRIC_DELTA = "delta"


def _unknown() -> None:
    """Default of a time that is written, as null, even when it is not known."""


class FsStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A file system; used_bytes and inodes_used may be of a part of it alone, such as one container's layer."""

    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None


class PSIData(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """For how long tasks have waited, and the lately averaged share of time in percent."""

    # Microseconds, as the kernel counts. Upstream speaks of nanoseconds, and shows what the kernel says as well.
    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PSIStats(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Pressure: how long all tasks, or some of them, had to wait."""

    full: PSIData = msgspec.field(default_factory=PSIData)
    some: PSIData = msgspec.field(default_factory=PSIData)


class CPUStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    # Nanoseconds of one core per second, lately.
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None
    psi: PSIStats | None = None


class MemoryStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    # What the limit leaves beyond the working set; None without a limit.
    available_bytes: int | None = None
    usage_bytes: int | None = None
    # What cannot be reclaimed easily.
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    psi: PSIStats | None = None


class IOStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    psi: PSIStats | None = None


class SwapStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None


class ProcessStats(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    process_count: int | None = None


class InterfaceStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    name: str = msgspec.field(default_factory=str)
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None


class NetworkStats(InterfaceStats, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """All interfaces, and what is said of the default one by itself."""

    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    interfaces: list[InterfaceStats] = []


class AcceleratorStats(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Memory in bytes, duty_cycle in percent."""

    make: str = ""
    model: str = ""
    id: str = ""
    memory_total: int = 0
    memory_used: int = 0
    duty_cycle: int = 0


class UserDefinedMetric(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A figure that a container exposes by itself."""

    name: str = msgspec.field(default_factory=str)
    type: str = msgspec.field(default_factory=str)
    units: str = msgspec.field(default_factory=str)
    labels: dict[str, str] = {}
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    value: float = msgspec.field(default_factory=float)


class VolumeHealthStats(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    abnormal: bool = False


class PVCReference(msgspec.Struct, kw_only=True, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""


class VolumeStats(FsStats, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    name: str = ""
    # The claim it comes from, if any.
    pvc_ref: PVCReference | None = None
    # None where the driver does not watch over its volumes.
    volume_health_stats: VolumeHealthStats | None = None


class ContainerStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A container of a pod, or a cgroup of the node's."""

    name: str = msgspec.field(default_factory=str)
    start_time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    accelerators: list[AcceleratorStats] = []
    # The writable layer.
    rootfs: FsStats | None = None
    logs: FsStats | None = None
    user_defined_metrics: list[UserDefinedMetric] = []
    swap: SwapStats | None = None


class PodReference(msgspec.Struct, kw_only=True, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class PodStats(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    rename={
        "pod_ref": "podRef",
        "start_time": "startTime",
        "volume_stats": "volume",
        "ephemeral_storage": "ephemeral-storage",
    },
    gc=False,
):
    """A pod: its cgroup, which has all its containers and what running them costs, its network and its storage."""

    pod_ref: PodReference = msgspec.field(default_factory=PodReference)
    start_time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    containers: list[ContainerStats] = msgspec.field(default_factory=metav1.always_list)
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    network: NetworkStats | None = None
    volume_stats: list[VolumeStats] = []
    # Layers, logs and volumes of the pod that are on the node's own disk.
    ephemeral_storage: FsStats | None = None
    process_stats: ProcessStats | None = None
    swap: SwapStats | None = None


class RlimitStats(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    rename={"max_pid": "maxpid", "num_of_running_processes": "curproc"},
    gc=False,
):
    """How many tasks, threads included, the node can have and has."""

    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    max_pid: int | None = None
    num_of_running_processes: int | None = None


class RuntimeStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The file systems of images and of containers' writable layers, which may be one and the same."""

    image_fs: FsStats | None = None
    container_fs: FsStats | None = None


class NodeStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The node as a whole."""

    node_name: str = msgspec.field(default_factory=str)
    # Named by SYSTEM_CONTAINER_*.
    system_containers: list[ContainerStats] = []
    start_time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    network: NetworkStats | None = None
    # The file system of the kubelet's root directory.
    fs: FsStats | None = None
    runtime: RuntimeStats | None = None
    rlimit: RlimitStats | None = None
    swap: SwapStats | None = None


class Summary(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    node: NodeStats = msgspec.field(default_factory=NodeStats)
    pods: list[PodStats] = []


def encode_json(stats: object) -> bytes:
    """As codec.encode_json, with times in full seconds."""
    return codec.encode_json(_in_full_seconds(stats))


def _in_full_seconds(value: object) -> object:
    match value:
        case datetime.datetime():
            return codec.seconds(value)
        case list():
            return [_in_full_seconds(item) for item in value]
        case msgspec.Struct():
            fields = {name: _in_full_seconds(getattr(value, name)) for name in value.__struct_fields__}
            return type(value)(**fields)
    return value
