"""Provide fakes for the eviction manager's dependencies, and pods with statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction.preview import Preview
from kubelet.eviction.types import CgroupNotifier
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1


@dataclass
class FakePodKiller:
    """Record the kill requests, and raise err if it is set."""

    pod: v1.Pod | None = None
    evict: bool = False
    status_fn: Callable[[v1.PodStatus], None] | None = None
    grace_period_override: int | None = None
    err: Exception | None = None
    killed: list[str] = field(default_factory=list)

    def kill_pod_now(
        self,
        pod: v1.Pod,
        is_evicted: bool,
        grace_period_override: int | None,
        status_fn: Callable[[v1.PodStatus], None] | None,
    ) -> None:
        self.pod, self.evict, self.status_fn = pod, is_evicted, status_fn
        self.grace_period_override = grace_period_override
        self.killed.append(pod.metadata.name)
        if self.err is not None:
            raise self.err


@dataclass
class FakeDiskInfoProvider:
    """Report the layout of the disks, or raise an error."""

    dedicated_image_fs: bool = False
    dedicated_container_fs: bool = False
    err: Exception | None = None
    container_fs_err: Exception | None = None

    def has_dedicated_image_fs(self, ctx: golang.Context) -> bool:
        if self.err is not None:
            raise self.err
        return self.dedicated_image_fs

    def has_dedicated_container_fs(self, ctx: golang.Context) -> bool:
        if self.container_fs_err is not None:
            raise self.container_fs_err
        return self.dedicated_container_fs


@dataclass
class FakeSummaryProvider:
    """Return the summary that the test sets, or raise an error."""

    result: statsapi.Summary = field(default_factory=statsapi.Summary)
    err: Exception | None = None
    # The fake counts here how often pods were measured.
    pods_measured: int = 0

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        self.pods_measured += 1
        if self.err is not None:
            raise self.err
        return self.result

    def get_node(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        if self.err is not None:
            raise self.err
        return statsapi.Summary(node=self.result.node)

    def get_disks(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return the summary with only the disk statistics of the pods."""
        pods = [msgspec.structs.replace(pod, cpu=None, memory=None, process_stats=None) for pod in self.result.pods]
        return statsapi.Summary(node=self.get_node(ctx, update_stats).node, pods=pods)


@dataclass
class FakeDiskGC:
    """Record garbage collections of images and containers, and replace the summary afterwards if the test wants it."""

    summary_provider: FakeSummaryProvider
    summary_after_gc: statsapi.Summary | None = None
    err: Exception | None = None
    # Each call adds "images" or "containers".
    calls: list[str] = field(default_factory=list)

    def delete_unused_images(self, ctx: golang.Context) -> None:
        self._collect("images")

    def delete_all_unused_containers(self, ctx: golang.Context) -> None:
        self._collect("containers")

    def _collect(self, what: str) -> None:
        self.calls.append(what)
        if self.summary_after_gc is not None:
            self.summary_provider.result = self.summary_after_gc
        if self.err is not None:
            raise self.err


class FakeCgroupNotifier:
    """Send the number of events that the test sets, once it is started."""

    def __init__(self, events: int = 0) -> None:
        self.events = events
        self.started: golang.Channel[None] = golang.Channel(1)
        self.stopped = False

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        for _ in range(self.events):
            event_ch.send(None)
        self.started.send(None)

    def stop(self) -> None:
        self.stopped = True


@dataclass
class FakeNotifierFactory:
    """Return the test's notifiers one after the other, or raise an error, and record the requests."""

    notifiers: list[FakeCgroupNotifier] = field(default_factory=list)
    err: Exception | None = None
    # Each entry holds the path, the attribute and the threshold.
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    def new_cgroup_notifier(self, path: str, attribute: str, threshold: int) -> CgroupNotifier:
        self.asked.append((path, attribute, threshold))
        if self.err is not None:
            raise self.err
        return self.notifiers.pop(0)


@dataclass
class FakeEvictionManager:
    """Report the pressure that the test sets."""

    memory: bool = False
    disk: bool = False
    pid: bool = False

    def start(self, *args: object) -> None: ...

    def is_under_memory_pressure(self) -> bool:
        return self.memory

    def is_under_disk_pressure(self) -> bool:
        return self.disk

    def is_under_pid_pressure(self) -> bool:
        return self.pid

    def preview(self, ctx: golang.Context) -> Preview:
        return Preview({}, [], 0.0, [], [])


# ---- Pods and statistics ----


def new_pod(
    name: str,
    priority: int | None = None,
    requests: Mapping[str, resource.Quantity] | None = None,
    limits: Mapping[str, resource.Quantity] | None = None,
    volumes: Iterable[v1.Volume] = (),
) -> v1.Pod:
    """Return a pod with one container of the same name."""
    needs = v1.ResourceRequirements(requests=dict(requests or {}), limits=dict(limits or {}))
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(f"uid-{name}")),
        spec=v1.PodSpec(
            priority=priority, containers=[v1.Container(name=name, resources=needs)], volumes=list(volumes)
        ),
    )


def amount(text: str) -> int:
    """Return the number that a text such as "1Gi" means."""
    return resource.parse_quantity(text).value()


def pod_stats(pod: v1.Pod, **figures: object) -> statsapi.PodStats:
    """Return statistics of the pod. Values that are not given are unknown."""
    meta = pod.metadata
    ref = statsapi.PodReference(name=meta.name, namespace=meta.namespace, uid=meta.uid)
    return statsapi.PodStats(pod_ref=ref, **figures)  # type: ignore[arg-type]


def memory_stats(pod: v1.Pod, working_set: str) -> statsapi.PodStats:
    """Return statistics with this working set for the pod and for each container."""
    memory = statsapi.MemoryStats(working_set_bytes=amount(working_set))
    containers = [statsapi.ContainerStats(name=c.name, memory=memory) for c in pod.spec.containers]
    return pod_stats(pod, memory=memory, containers=containers)


def process_stats(pod: v1.Pod, count: int) -> statsapi.PodStats:
    """Return statistics with this number of processes."""
    return pod_stats(pod, process_stats=statsapi.ProcessStats(process_count=count))


def disk_stats(pod: v1.Pod, rootfs: str, logs: str, volume: str) -> statsapi.PodStats:
    """Return statistics with the bytes that each container's layer and log and each volume use."""
    return _storage_stats(pod, "used_bytes", rootfs, logs, volume)


def inode_stats(pod: v1.Pod, rootfs: str, logs: str, volume: str) -> statsapi.PodStats:
    """Return statistics with the inodes that each container's layer and log and each volume use."""
    return _storage_stats(pod, "inodes_used", rootfs, logs, volume)


def _storage_stats(pod: v1.Pod, kind: str, rootfs: str, logs: str, volume: str) -> statsapi.PodStats:
    def fs(text: str) -> statsapi.FsStats:
        return statsapi.FsStats(**{kind: amount(text)})  # type: ignore[arg-type]

    containers = [statsapi.ContainerStats(name=c.name, rootfs=fs(rootfs), logs=fs(logs)) for c in pod.spec.containers]
    volumes = [
        statsapi.VolumeStats(name=v.name, **{kind: amount(volume)})  # type: ignore[arg-type]
        for v in pod.spec.volumes
    ]
    return pod_stats(pod, containers=containers, volume_stats=volumes)


def threshold(
    signal: evictionapi.Signal, value: str, grace_period: float = 0.0, min_reclaim: str = ""
) -> evictionapi.Threshold:
    """Return a threshold, for example of MEMORY_AVAILABLE and "1Gi". A value may be a percentage."""
    return evictionapi.Threshold(signal, _value(value), grace_period, _value(min_reclaim) if min_reclaim else None)


def _value(text: str) -> evictionapi.ThresholdValue:
    if text.endswith("%"):
        return evictionapi.ThresholdValue(percentage=float(text[:-1]) / 100)
    return evictionapi.ThresholdValue(quantity=resource.parse_quantity(text))
