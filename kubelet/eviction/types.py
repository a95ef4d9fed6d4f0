"""Define the types of the eviction manager, and what it needs from other components.

Go: pkg/kubelet/eviction/types.go
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

if TYPE_CHECKING:
    from kubelet.eviction.preview import Preview


class FsStatsType(enum.Enum):
    """Represent a part of a pod's disk usage."""

    LOCAL_VOLUME_SOURCE = "localVolumeSource"
    LOGS = "logs"
    # These are the containers' writable layers.
    ROOT = "root"
    # The images belong to no pod, so nothing counts for this part.
    IMAGES = "images"


@dataclass(kw_only=True, slots=True)
class Config:
    """Hold the configuration of eviction. Times are in seconds."""

    # A node condition stays for this time after it was last observed.
    pressure_transition_period: float = 0.0
    # A pod that a soft threshold evicts gets at most this grace period.
    max_pod_grace_period_seconds: int = 0
    thresholds: list[evictionapi.Threshold]
    # If set, the kernel reports when usage crosses a memory threshold.
    kernel_memcg_notification: bool = False
    # This is the cgroup of all pods.
    pod_cgroup_root: str = ""


class Manager(Protocol):
    """Define what the kubelet needs from the eviction manager. Any thread may call it."""

    def start(
        self,
        ctx: golang.Context,
        disk_info_provider: DiskInfoProvider,
        pod_func: ActivePodsFunc,
        pod_cleaned_up_func: PodCleanedUpFunc,
        monitoring_interval: float,
    ) -> None:
        """Check the node every monitoring_interval seconds, on a thread that ends with ctx."""
        ...

    def is_under_memory_pressure(self) -> bool: ...

    def is_under_disk_pressure(self) -> bool: ...

    def is_under_pid_pressure(self) -> bool: ...

    def preview(self, ctx: golang.Context) -> Preview:
        """Return which pods would be evicted now, and why. Go's manager has no such method."""
        ...


class DiskInfoProvider(Protocol):
    """Define how the manager learns the layout of the disks.

    Both methods raise crierror.RemoteError, OSError, ValueError and LookupError.
    """

    def has_dedicated_image_fs(self, ctx: golang.Context) -> bool:
        """Report whether images are on another device than the kubelet's root directory."""
        ...

    def has_dedicated_container_fs(self, ctx: golang.Context) -> bool:
        """Report whether the containers' writable layers are on another device than the images."""
        ...


class SummaryProvider(Protocol):
    """Define how the manager gets summaries.

    Go has only `get`, because there cAdvisor already has all statistics. Here each summary has to be measured.
    """

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary: ...

    def get_node(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return a summary without pods."""
        ...

    def get_disks(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return a summary with only the disk statistics of pods."""
        ...


class ImageGC(Protocol):
    """Define how the manager removes unused images."""

    def delete_unused_images(self, ctx: golang.Context) -> None: ...


class ContainerGC(Protocol):
    """Define how the manager removes dead containers."""

    def delete_all_unused_containers(self, ctx: golang.Context) -> None:
        """Remove all dead containers, including those of pods that have terminated but are not deleted."""
        ...


# A KillPodFunc (pod, is_evicted, grace_period_override, status_fn) returns only when the pod has terminated, or raises
# an error.
KillPodFunc = Callable[[v1.Pod, bool, int | None, Callable[[v1.PodStatus], None] | None], None]
# An ActivePodsFunc returns the pods that may have running containers, with their allocated resources.
ActivePodsFunc = Callable[[], list[v1.Pod]]
# A PodCleanedUpFunc reports whether all resources of a pod have been released.
PodCleanedUpFunc = Callable[[v1.Pod], bool]
# A StatsFunc returns the statistics of a pod, or None if there are none.
StatsFunc = Callable[[v1.Pod], statsapi.PodStats | None]
# A NodeReclaimFunc removes something from the node without harm to pods.
NodeReclaimFunc = Callable[[golang.Context], None]


@dataclass(frozen=True, slots=True)
class SignalObservation:
    """Record the measurement of a signal and its time."""

    capacity: Quantity
    available: Quantity
    time: datetime.datetime | None = None


SignalObservations = dict[evictionapi.Signal, SignalObservation]
ThresholdsObservedAt = dict[evictionapi.Threshold, datetime.datetime]
NodeConditionsObservedAt = dict[str, datetime.datetime]


@dataclass(frozen=True, slots=True)
class RankedPod:
    """Represent a pod in the ranking for eviction, with the reasons for its rank. Go keeps only the order."""

    pod: v1.Pod
    resource: str
    priority: int
    # The usage is None if the pod has no statistics.
    usage: Quantity | None
    # The request is None for a resource that cannot be requested.
    request: Quantity | None

    @property
    def exceeds_request(self) -> bool:
        return self.usage is not None and self.usage.cmp(self.request or Quantity(0)) > 0

    @property
    def spared(self) -> bool:
        """Report whether the pod is never evicted, whatever its rank."""
        return kubetypes.is_critical_pod(self.pod)

    def __str__(self) -> str:
        """Return the reasons for the rank, for example "over its request, priority 0, usage 700Mi, request 1Gi"."""
        return self.describe(str)

    def describe(self, write: Callable[[Quantity], str]) -> str:
        """Return the reasons for the rank, with quantities formatted by `write`."""
        parts = [f"priority {self.priority}"]
        if self.usage is None:
            return ", ".join(["usage unknown", *parts])
        if self.request is not None:
            parts.insert(0, "over its request" if self.exceeds_request else "within its request")
        parts.append(f"usage {write(self.usage)}")
        if self.request is not None:
            parts.append(f"request {write(self.request)}")
        return ", ".join(parts)


# A RankFunc sorts pods in the order of eviction, the first one to evict first.
RankFunc = Callable[[Sequence[v1.Pod], StatsFunc], list[RankedPod]]


class CgroupNotifier(Protocol):
    """Define a source of events of one cgroup."""

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        """Send an event for each crossing of the threshold, until the notifier is stopped or ctx ends."""
        ...

    def stop(self) -> None:
        """End `start` and close all descriptors. Callers may call this more than once."""
        ...


class NotifierFactory(Protocol):
    """Define how cgroup notifiers are created."""

    def new_cgroup_notifier(self, path: str, attribute: str, threshold: int) -> CgroupNotifier:
        """Return a notifier for the value in that file of the cgroup. Raise OSError."""
        ...


class ThresholdNotifier(Protocol):
    """Define an object that calls a function when usage crosses a memory threshold."""

    def start(self, ctx: golang.Context) -> None:
        """Call the function for each event, until ctx ends."""
        ...

    def update_threshold(self, ctx: golang.Context, summary: statsapi.Summary) -> None:
        """Set the threshold again from these statistics. Raise OSError and ValueError."""
        ...

    def description(self) -> str: ...
