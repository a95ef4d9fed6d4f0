"""Define the types of /stats/summary.

The values are totals since a start, except usage_nano_cores, which is a rate. None means unknown. Times keep their
fractions of a second, which /metrics/resource shows; `encode_json` drops the fractions, as Go's JSON does.

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

# These cgroups do not belong to a pod: they are those of the kubelet, of the runtime and of all other processes, and
# the parent of all pods' cgroups.
SYSTEM_CONTAINER_KUBELET = "kubelet"
SYSTEM_CONTAINER_RUNTIME = "runtime"
SYSTEM_CONTAINER_MISC = "misc"
SYSTEM_CONTAINER_PODS = "pods"

# A metric of a container has one of these kinds.
METRIC_GAUGE = "gauge"
METRIC_CUMULATIVE = "cumulative"
METRIC_DELTA = "delta"


def _unknown() -> None:
    """Return None, as the default of a time that is encoded as null when it is unknown."""


class FsStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Describe a file system; used_bytes and inodes_used may cover only a part of it, such as a container's layer."""

    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None


class PSIData(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Hold how long tasks have waited, and the percentage of the time for which they waited recently."""

    # The total is in microseconds, as in the kernel. Upstream's documentation says nanoseconds, but its value is the
    # kernel's too.
    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PSIStats(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Hold how long all tasks, or some of them, waited."""

    full: PSIData = msgspec.field(default_factory=PSIData)
    some: PSIData = msgspec.field(default_factory=PSIData)


class CPUStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    # The value is the recent usage, in nanoseconds of a core for each second.
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None
    psi: PSIStats | None = None


class MemoryStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    # The value is the limit minus the working set, or None without a limit.
    available_bytes: int | None = None
    usage_bytes: int | None = None
    # The value is the memory that the kernel cannot reclaim easily.
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
    """Hold all interfaces, and the statistics of the default interface."""

    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    interfaces: list[InterfaceStats] = []


class AcceleratorStats(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Describe an accelerator: memory in bytes, duty_cycle in percent."""

    make: str = ""
    model: str = ""
    id: str = ""
    memory_total: int = 0
    memory_used: int = 0
    duty_cycle: int = 0


class UserDefinedMetric(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Describe a metric that a container exposes."""

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
    # This is the claim of the volume, if any.
    pvc_ref: PVCReference | None = None
    # The value is None if the driver does not monitor its volumes.
    volume_health_stats: VolumeHealthStats | None = None


class ContainerStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Hold the statistics of a pod's container or of a system cgroup."""

    name: str = msgspec.field(default_factory=str)
    start_time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    accelerators: list[AcceleratorStats] = []
    # This is the writable layer.
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
    """Hold the statistics of a pod: its cgroup (all containers and the overhead), its network and its storage."""

    pod_ref: PodReference = msgspec.field(default_factory=PodReference)
    start_time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    containers: list[ContainerStats] = msgspec.field(default_factory=metav1.always_list)
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    network: NetworkStats | None = None
    volume_stats: list[VolumeStats] = []
    # The sum covers the pod's layers, logs and volumes on the node's own disk.
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
    """Hold the maximum and the current number of the node's tasks; threads count as tasks."""

    time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    max_pid: int | None = None
    num_of_running_processes: int | None = None


class RuntimeStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Hold the file systems of images and of writable layers, which may be the same one."""

    image_fs: FsStats | None = None
    container_fs: FsStats | None = None


class NodeStats(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Hold the statistics of the node."""

    node_name: str = msgspec.field(default_factory=str)
    # The names are SYSTEM_CONTAINER_*.
    system_containers: list[ContainerStats] = []
    start_time: datetime.datetime | None = msgspec.field(default_factory=_unknown)
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    network: NetworkStats | None = None
    # This is the file system of the kubelet's root directory.
    fs: FsStats | None = None
    runtime: RuntimeStats | None = None
    rlimit: RlimitStats | None = None
    swap: SwapStats | None = None


class Summary(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    node: NodeStats = msgspec.field(default_factory=NodeStats)
    pods: list[PodStats] = []


def encode_json(stats: object) -> bytes:
    """Encode like codec.encode_json, but with times in whole seconds."""
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
