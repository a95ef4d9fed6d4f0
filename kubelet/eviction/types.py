"""What the eviction manager is made of, and what it needs of others.

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
    """A part of what a pod takes on a disk."""

    LOCAL_VOLUME_SOURCE = "localVolumeSource"
    LOGS = "logs"
    # Containers' writable layers.
    ROOT = "root"
    # Images, which are no pod's own: nothing counts for this.
    IMAGES = "images"


@dataclass(kw_only=True, slots=True)
class Config:
    """How eviction is configured. Times in seconds."""

    # How long a condition stays after the last time that it was seen.
    pressure_transition_period: float = 0.0
    # The longest grace period of a pod that a soft threshold evicts.
    max_pod_grace_period_seconds: int = 0
    thresholds: list[evictionapi.Threshold]
    # Whether the kernel is to tell when a memory threshold is crossed.
    kernel_memcg_notification: bool = False
    # The cgroup of all pods.
    pod_cgroup_root: str = ""


class Manager(Protocol):
    """Looks whether the node is short of something, and what can be done. Safe from any thread."""

    def start(
        self,
        ctx: golang.Context,
        disk_info_provider: DiskInfoProvider,
        pod_func: ActivePodsFunc,
        pod_cleaned_up_func: PodCleanedUpFunc,
        monitoring_interval: float,
    ) -> None:
        """Look every so many seconds, on a thread that ends with ctx."""
        ...

    def is_under_memory_pressure(self) -> bool: ...

    def is_under_disk_pressure(self) -> bool: ...

    def is_under_pid_pressure(self) -> bool: ...

    def preview(self, ctx: golang.Context) -> Preview:
        """Who would be evicted now, and why; Go's manager has no such method."""
        ...


class DiskInfoProvider(Protocol):
    """Knows how the disks are laid out. Both raise crierror.RemoteError, OSError, ValueError and LookupError."""

    def has_dedicated_image_fs(self, ctx: golang.Context) -> bool:
        """Whether images are on another device than the kubelet's root directory."""
        ...

    def has_dedicated_container_fs(self, ctx: golang.Context) -> bool:
        """Whether containers' writable layers are on another device than images."""
        ...


class SummaryProvider(Protocol):
    """Makes summaries. In Go there is only the first: there all figures are at hand, here they have to be read."""

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary: ...

    def get_node(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Without pods."""
        ...

    def get_disks(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Of pods only what they take of the node's disk."""
        ...


class ImageGC(Protocol):
    """Removes unused images."""

    def delete_unused_images(self, ctx: golang.Context) -> None: ...


class ContainerGC(Protocol):
    """Removes dead containers."""

    def delete_all_unused_containers(self, ctx: golang.Context) -> None:
        """Also those of pods that have ended, but are not deleted."""
        ...


# (pod, is_evicted, grace_period_override, status_fn); returns only when the pod has ended, or raises.
KillPodFunc = Callable[[v1.Pod, bool, int | None, Callable[[v1.PodStatus], None] | None], None]
# The pods that may have something running, with the resources that they were given.
ActivePodsFunc = Callable[[], list[v1.Pod]]
# Whether all that a pod took has been given back.
PodCleanedUpFunc = Callable[[v1.Pod], bool]
# The figures of a pod; None if there are none.
StatsFunc = Callable[[v1.Pod], statsapi.PodStats | None]
# Removes something from the node without harm to pods.
NodeReclaimFunc = Callable[[golang.Context], None]


@dataclass(frozen=True, slots=True)
class SignalObservation:
    """What was measured of a signal, and when."""

    capacity: Quantity
    available: Quantity
    time: datetime.datetime | None = None


SignalObservations = dict[evictionapi.Signal, SignalObservation]
ThresholdsObservedAt = dict[evictionapi.Threshold, datetime.datetime]
NodeConditionsObservedAt = dict[str, datetime.datetime]


@dataclass(frozen=True, slots=True)
class RankedPod:
    """A pod in the order of eviction, with what put it there. Go keeps nothing but the order."""

    pod: v1.Pod
    resource: str
    priority: int
    # None where there are no figures of the pod.
    usage: Quantity | None
    # None for a resource that cannot be requested.
    request: Quantity | None

    @property
    def exceeds_request(self) -> bool:
        return self.usage is not None and self.usage.cmp(self.request or Quantity(0)) > 0

    @property
    def spared(self) -> bool:
        """Whether it stays, whatever its place."""
        return kubetypes.is_critical_pod(self.pod)

    def __str__(self) -> str:
        """What put it there, as eviction messages say it: "over its request, priority 0, usage 700Mi, request 1Gi"."""
        return self.describe(str)

    def describe(self, write: Callable[[Quantity], str]) -> str:
        """The same, with quantities written as the caller wants them."""
        parts = [f"priority {self.priority}"]
        if self.usage is None:
            return ", ".join(["usage unknown", *parts])
        if self.request is not None:
            parts.insert(0, "over its request" if self.exceeds_request else "within its request")
        parts.append(f"usage {write(self.usage)}")
        if self.request is not None:
            parts.append(f"request {write(self.request)}")
        return ", ".join(parts)


# Puts pods in the order of eviction, the first to go first.
RankFunc = Callable[[Sequence[v1.Pod], StatsFunc], list[RankedPod]]


class CgroupNotifier(Protocol):
    """Passes on events of one cgroup."""

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        """Send an event for each crossing, until it is stopped or ctx ends."""
        ...

    def stop(self) -> None:
        """End start and give back all descriptors; may be called more than once."""
        ...


class NotifierFactory(Protocol):
    """Makes notifiers."""

    def new_cgroup_notifier(self, path: str, attribute: str, threshold: int) -> CgroupNotifier:
        """Tells whenever the figure in that file of the cgroup crosses the threshold. Raises OSError."""
        ...


class ThresholdNotifier(Protocol):
    """Calls a function when a memory threshold is crossed."""

    def start(self, ctx: golang.Context) -> None:
        """Call the function for each event, until ctx ends."""
        ...

    def update_threshold(self, ctx: golang.Context, summary: statsapi.Summary) -> None:
        """Set the threshold anew by these figures. Raises OSError and ValueError."""
        ...

    def description(self) -> str: ...
