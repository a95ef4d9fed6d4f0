"""Provide statistics from the container runtime, supplemented with those of cAdvisor.

Go: pkg/kubelet/stats/cri_stats_provider.go, cri_stats_provider_linux.go
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf.message import Message

from kubelet import cadvisor as kubecadvisor
from kubelet import container as kubecontainer
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.cri import apis as internalapi
from kubelet.cri import errors as crierror
from kubelet.kuberuntime.helpers import time_from_nanoseconds
from kubelet.stats import helper
from kubelet.stats.cadvisor_stats_provider import (
    CadvisorStatsProvider,
    ContainerInfos,
    filter_terminated_container_info_and_assemble_by_pod_cgroup_key,
    get_cadvisor_container_info,
    get_cadvisor_pod_info_from_pod_uid,
    is_pod_managed_container,
)
from kubelet.stats.host_stats_provider import HostStatsProvider
from kubelet.util import format
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.util.runtime import contain

if TYPE_CHECKING:
    from kubelet.server.stats import FsResourceAnalyzerInterface

# The CPU usage of a container is cached for this time, in seconds.
DEFAULT_CACHE_PERIOD = 600.0


class _CPUUsageRecord(NamedTuple):
    """Record a container's CPU usage and its time, both in nanoseconds, and the rate at that time, once it is known."""

    usage_core_nano_seconds: int
    timestamp: int
    usage_nano_cores: int | None


class _ContainersAndSandboxes(NamedTuple):
    """Hold the running containers and the sandboxes by id."""

    containers: dict[str, runtimeapi.Container]
    sandboxes: dict[str, runtimeapi.PodSandbox]

    def of_containers(
        self, entries: Iterable[runtimeapi.ContainerStats]
    ) -> Iterator[tuple[runtimeapi.ContainerStats, runtimeapi.Container, runtimeapi.PodSandbox]]:
        """Yield each entry with its container and sandbox. Entries without either are skipped."""
        for entry in entries:
            container = self.containers.get(entry.attributes.id)
            sandbox = None if container is None else self.sandboxes.get(container.pod_sandbox_id)
            if container is not None and sandbox is not None:
                yield entry, container, sandbox


@dataclass(slots=True)
class _Collection:
    """Hold what one call needs for every container."""

    root_fs: cadvisorapiv2.FsInfo
    update_cpu_nano_core_usage: bool
    # The keys are mount points. A value is None if cAdvisor does not know the file system or cannot read it.
    file_systems: dict[str, cadvisorapiv2.FsInfo | None] = field(default_factory=dict)


class CRIStatsProvider:
    """Ask the runtime at each call. Any thread may call this class.

    The methods raise crierror.RemoteError, OSError, ValueError and LookupError.
    """

    def __init__(
        self,
        cadvisor: kubecadvisor.Interface,
        resource_analyzer: FsResourceAnalyzerInterface,
        runtime_service: internalapi.RuntimeService,
        image_service: internalapi.ImageManagerService,
        host_stats_provider: HostStatsProvider,
        pod_and_container_stats_from_cri: bool,
        fallback_stats_provider: CadvisorStatsProvider,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create a provider.

        With pod_and_container_stats_from_cri, cAdvisor is used only if the runtime does not provide pod statistics.
        """
        self._cadvisor = cadvisor
        self._resource_analyzer = resource_analyzer
        self._runtime_service = runtime_service
        self._image_service = image_service
        self._host_stats_provider = host_stats_provider
        self._from_cri = pod_and_container_stats_from_cri
        self._fallback = fallback_stats_provider
        self._clock = clock or clocklib.RealClock()
        self._lock = threading.Lock()  # The lock guards _cpu_usage_cache.
        # The keys are container ids.
        self._cpu_usage_cache: dict[str, _CPUUsageRecord] = {}

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self._list_pod_stats(ctx, update_cpu_nano_core_usage=False)

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return the statistics, and compute the CPU rates over the time since the previous call.

        The method is meant for a single caller that calls it every few seconds. With several callers the intervals
        would vary, and the rates would be inconsistent. A runtime may not provide rates itself.
        """
        return self._list_pod_stats(ctx, update_cpu_nano_core_usage=True)

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return only what the layers, logs and volumes of pods use. The method reads no cgroups."""
        pods: dict[str, statsapi.PodStats] = {}
        collection = _Collection(self._cadvisor.root_fs_info(), update_cpu_nano_core_usage=False)
        known = self._get_pod_and_container_maps(ctx)
        answer = self._runtime_service.list_container_stats(ctx, runtimeapi.ContainerStatsFilter())
        for entry, container, sandbox in known.of_containers(answer):
            pod = pods.setdefault(sandbox.id, build_pod_stats(sandbox))
            with _of_one(ctx, container):
                stats = statsapi.ContainerStats(
                    name=container.metadata.name,
                    rootfs=self._rootfs_stats(entry, collection),
                    logs=self._log_stats(container, sandbox.metadata, collection),
                )
                pod.containers.append(stats)
        for pod in pods.values():
            self._make_pod_storage_stats(ctx, pod, collection)
        return list(pods.values())

    def _list_pod_stats(self, ctx: golang.Context, update_cpu_nano_core_usage: bool) -> list[statsapi.PodStats]:
        collection = _Collection(self._cadvisor.root_fs_info(), update_cpu_nano_core_usage)
        known = self._get_pod_and_container_maps(ctx)
        if self._from_cri:
            try:
                return self._list_pod_stats_strictly_from_cri(ctx, known, collection)
            except crierror.RemoteError as err:
                if not _is_unimplemented(err, "ListPodSandboxStats"):
                    raise
        return self._list_pod_stats_partially_from_cri(ctx, known, collection)

    def _list_pod_stats_partially_from_cri(
        self, ctx: golang.Context, known: _ContainersAndSandboxes, collection: _Collection
    ) -> list[statsapi.PodStats]:
        """Return the runtime's container statistics, with cAdvisor's where available."""
        pods: dict[str, statsapi.PodStats] = {}
        answer = self._runtime_service.list_container_stats(ctx, runtimeapi.ContainerStatsFilter())
        containers, by_pod_cgroup = get_cri_cadvisor_stats(get_cadvisor_container_info(self._cadvisor))
        for entry, container, sandbox in known.of_containers(answer):
            pod = pods.setdefault(sandbox.id, build_pod_stats(sandbox))
            with _of_one(ctx, container):
                stats = self._make_container_stats(entry, container, sandbox.metadata, collection)
                _add_pod_network_stats(pod, sandbox.id, containers)
                pod_info = get_cadvisor_pod_info_from_pod_uid(types.UID(sandbox.metadata.uid), by_pod_cgroup)
                _add_pod_cpu_and_memory_stats(pod, pod_info, stats)
                _add_swap_stats(pod, pod_info, stats)
                _add_io_stats(pod, pod_info, stats)
                info = containers.get(entry.attributes.id)
                if info is None:
                    klog.v(5).info_s("Unable to find cadvisor stats for container", containerID=entry.attributes.id)
                else:
                    _add_cadvisor_container_stats(stats, info)
                    stats.io = helper.cadvisor_info_to_io_stats(info) or stats.io
                    processes = helper.cadvisor_info_to_process_stats(info)
                    pod.process_stats = helper.merge_process_stats(pod.process_stats, processes)
                pod.containers.append(stats)
        self._cleanup_outdated_caches()
        for pod in pods.values():
            self._make_pod_storage_stats(ctx, pod, collection)
        return list(pods.values())

    def _list_pod_stats_strictly_from_cri(
        self, ctx: golang.Context, known: _ContainersAndSandboxes, collection: _Collection
    ) -> list[statsapi.PodStats]:
        result: list[statsapi.PodStats] = []
        for entry in self._runtime_service.list_pod_sandbox_stats(ctx, runtimeapi.PodSandboxStatsFilter()):
            sandbox = known.sandboxes.get(entry.attributes.id)
            if sandbox is None:
                continue
            pod = build_pod_stats(sandbox)
            for of_container in entry.linux.containers:
                container = known.containers.get(of_container.attributes.id)
                if container is None:
                    continue
                with _of_one(ctx, container):
                    pod.containers.append(
                        self._make_container_stats(of_container, container, sandbox.metadata, collection)
                    )
            with contain("Failed to get the statistics of a pod", ctx, pod=pod.pod_ref.name, podUID=pod.pod_ref.uid):
                _add_cri_pod_stats(pod, entry.linux)
            self._make_pod_storage_stats(ctx, pod, collection)
            result.append(pod)
        self._cleanup_outdated_caches()
        return result

    def _make_pod_storage_stats(self, ctx: golang.Context, pod: statsapi.PodStats, collection: _Collection) -> None:
        """Add the pod's storage. An error must not hide the other pods, especially from the eviction manager."""
        with contain("Failed to get the storage of a pod", ctx, pod=pod.pod_ref.name, podUID=pod.pod_ref.uid):
            helper.make_pod_storage_stats(pod, collection.root_fs, self._resource_analyzer, self._host_stats_provider)

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        """Return one pod's statistics. Raise LookupError for a pod without a sandbox."""
        if not pod_status.sandbox_statuses:
            raise LookupError(f"missing sandbox for pod {format.pod(pod)}")
        sandbox = pod_status.sandbox_statuses[0]
        stats = build_pod_stats(sandbox)
        if self._from_cri:
            try:
                answer = self._runtime_service.pod_sandbox_stats(ctx, sandbox.id)
                stats.cpu, stats.memory = _pod_cpu_stats(answer.linux), _pod_memory_stats(answer.linux)
            except crierror.RemoteError as err:
                if not _is_unimplemented(err, "PodSandboxStats"):
                    raise
        found = self._runtime_service.list_container_stats(
            ctx, runtimeapi.ContainerStatsFilter(pod_sandbox_id=sandbox.id)
        )
        for entry in found:
            status = pod_status.find_container_status_by_name(entry.attributes.metadata.name)
            if status is None:
                klog.v(4).info_s(
                    "Received stats for unknown container", pod=klog.kobj(pod), container=entry.attributes.metadata
                )
                continue
            stats.containers.append(self._make_container_cpu_and_memory_stats(entry, status.created_at, None))
        missing = stats.cpu is None or stats.memory is None
        if missing or not found or any(part.cpu is None or part.memory is None for part in stats.containers):
            _fill_up(stats, self._fallback.pod_cpu_and_memory_stats(ctx, pod, pod_status))
        return stats

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        known = self._get_pod_and_container_maps(ctx)
        if self._from_cri:
            try:
                return self._list_pod_cpu_and_memory_stats_strictly_from_cri(ctx, known)
            except crierror.RemoteError as err:
                if not _is_unimplemented(err, "ListPodSandboxStats"):
                    raise
        pods: dict[str, statsapi.PodStats] = {}
        answer = self._runtime_service.list_container_stats(ctx, runtimeapi.ContainerStatsFilter())
        containers, by_pod_cgroup = get_cri_cadvisor_stats(get_cadvisor_container_info(self._cadvisor))
        for entry, container, sandbox in known.of_containers(answer):
            pod = pods.setdefault(sandbox.id, build_pod_stats(sandbox))
            with _of_one(ctx, container):
                created = time_from_nanoseconds(container.created_at)
                stats = self._make_container_cpu_and_memory_stats(entry, created, 0)
                pod_info = get_cadvisor_pod_info_from_pod_uid(types.UID(sandbox.metadata.uid), by_pod_cgroup)
                _add_pod_cpu_and_memory_stats(pod, pod_info, stats)
                _add_swap_stats(pod, pod_info, stats)
                info = containers.get(entry.attributes.id)
                if info is None:
                    klog.v(4).info_s("Unable to find cadvisor stats for container", containerID=entry.attributes.id)
                else:
                    _add_cadvisor_container_stats(stats, info)
                pod.containers.append(stats)
        self._cleanup_outdated_caches()
        return list(pods.values())

    def _list_pod_cpu_and_memory_stats_strictly_from_cri(
        self, ctx: golang.Context, known: _ContainersAndSandboxes
    ) -> list[statsapi.PodStats]:
        result: list[statsapi.PodStats] = []
        for entry in self._runtime_service.list_pod_sandbox_stats(ctx, runtimeapi.PodSandboxStatsFilter()):
            sandbox = known.sandboxes.get(entry.attributes.id)
            if sandbox is None:
                continue
            pod = build_pod_stats(sandbox)
            for of_container in entry.linux.containers:
                container = known.containers.get(of_container.attributes.id)
                if container is None:
                    continue
                with _of_one(ctx, container):
                    created = time_from_nanoseconds(container.created_at)
                    pod.containers.append(self._make_container_cpu_and_memory_stats(of_container, created, 0))
            with contain("Failed to get the statistics of a pod", ctx, pod=pod.pod_ref.name, podUID=pod.pod_ref.uid):
                pod.cpu, pod.memory = _pod_cpu_stats(entry.linux), _pod_memory_stats(entry.linux)
                # The runtime provides no swap statistics for the pod as a whole.
                for stats in pod.containers:
                    _add_swap_stats(pod, None, stats)
            result.append(pod)
        return result

    def _get_pod_and_container_maps(self, ctx: golang.Context) -> _ContainersAndSandboxes:
        containers = self._runtime_service.list_containers(ctx, runtimeapi.ContainerFilter())
        sandboxes = remove_terminated_pods(self._runtime_service.list_pod_sandbox(ctx, runtimeapi.PodSandboxFilter()))
        return _ContainersAndSandboxes(
            {container.id: container for container in remove_terminated_containers(containers)},
            {sandbox.id: sandbox for sandbox in sandboxes},
        )

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        """Return the file systems of images and of containers' writable layers.

        Raise ValueError if the runtime names none.
        """
        response = self._image_service.image_fs_info(ctx)
        if not response.image_filesystems:
            raise ValueError("imageFs information is unavailable")
        usage = response.image_filesystems[0]
        image = self._fs_stats(usage)
        for of_containers in response.container_filesystems[:1]:
            # DIVERGES (fault of Go): the file system of containers' layers has its own statistics if it is not that of
            # the images.
            # Go: pkg/kubelet/stats/cri_stats_provider.go, (*criStatsProvider).ImageFsStats: the Go kubelet returns the
            # statistics of the images' file system.
            # Why: no pod would be evicted when the disk of the layers fills up.
            # Test: cri_stats_provider_test.py:test_containers_on_a_file_system_of_their_own
            if of_containers.fs_id.mountpoint != usage.fs_id.mountpoint:
                return image, self._fs_stats(of_containers)
        return image, image

    def _fs_stats(self, usage: runtimeapi.FilesystemUsage) -> statsapi.FsStats:
        """Return the runtime's usage of a file system, with the totals of the file system if it is on this machine."""
        stats = statsapi.FsStats(
            time=time_from_nanoseconds(usage.timestamp),
            used_bytes=_value(usage, "used_bytes"),
            inodes_used=_value(usage, "inodes_used"),
        )
        _add_fs_info(stats, self._get_fs_info(usage))
        return stats

    def image_fs_device(self, ctx: golang.Context) -> str:
        """Return the device of the images, such as /dev/sda1. Raise LookupError if it is unknown."""
        for usage in self._image_service.image_fs_info(ctx).image_filesystems:
            info = self._get_fs_info(usage)
            if info is not None:
                return info.device
        raise LookupError("imagefs device is not found")

    def container_fs_device(self, ctx: golang.Context) -> str:
        """Return the device of the containers' layers: the images' device unless the runtime reports another."""
        for usage in self._image_service.image_fs_info(ctx).container_filesystems:
            info = self._get_fs_info(usage)
            if info is not None:
                return info.device
        return self.image_fs_device(ctx)

    def _get_fs_info(self, usage: runtimeapi.FilesystemUsage) -> cadvisorapiv2.FsInfo | None:
        """Return the file system, or None if it is not on this machine. Raise OSError."""
        if not usage.HasField("fs_id"):
            klog.v(2).info_s("Failed to get filesystem info: fsID is nil")
            return None
        mountpoint = usage.fs_id.mountpoint
        try:
            return self._cadvisor.get_dir_fs_info(mountpoint)
        except LookupError as err:
            klog.v(2).info_s("Failed to get the info of the filesystem with mountpoint", mountpoint=mountpoint, err=err)
            return None

    def _make_container_stats(
        self,
        entry: runtimeapi.ContainerStats,
        container: runtimeapi.Container,
        meta: runtimeapi.PodSandboxMetadata,
        collection: _Collection,
    ) -> statsapi.ContainerStats:
        """Return all statistics of a container from the runtime and the node's disk."""
        return statsapi.ContainerStats(
            name=entry.attributes.metadata.name,
            start_time=time_from_nanoseconds(container.created_at),
            cpu=self._cpu_stats(entry, collection.update_cpu_nano_core_usage),
            memory=self._memory_stats(entry),
            swap=_swap_stats(entry) or self._no_swap(),
            io=_io_stats(entry) or statsapi.IOStats(time=self._clock.now()),
            rootfs=self._rootfs_stats(entry, collection),
            logs=self._log_stats(container, meta, collection),
        )

    def _log_stats(
        self, container: runtimeapi.Container, meta: runtimeapi.PodSandboxMetadata, collection: _Collection
    ) -> statsapi.FsStats | None:
        name = container.metadata.name
        try:
            return self._host_stats_provider.get_pod_container_log_stats(
                meta.namespace, meta.name, types.UID(meta.uid), name, collection.root_fs
            )
        except OSError as err:
            klog.error_s(err, "Unable to fetch container log stats", containerName=name)
            return None

    def _cpu_stats(self, entry: runtimeapi.ContainerStats, update: bool) -> statsapi.CPUStats:
        if not entry.HasField("cpu"):
            return self._no_cpu()
        if update:
            usage = self._get_and_update_container_usage_nano_cores(entry)
        else:
            usage = self._get_container_usage_nano_cores(entry)
        return _cpu_stats(entry.cpu, usage)

    def _memory_stats(self, entry: runtimeapi.ContainerStats) -> statsapi.MemoryStats:
        if entry.HasField("memory"):
            return memory_stats(entry.memory)
        return statsapi.MemoryStats(time=self._clock.now(), working_set_bytes=0, usage_bytes=0, rss_bytes=0)

    def _no_cpu(self) -> statsapi.CPUStats:
        return statsapi.CPUStats(time=self._clock.now(), usage_core_nano_seconds=0, usage_nano_cores=0)

    def _no_swap(self) -> statsapi.SwapStats:
        return statsapi.SwapStats(time=self._clock.now(), swap_usage_bytes=0, swap_available_bytes=0)

    def _rootfs_stats(self, entry: runtimeapi.ContainerStats, collection: _Collection) -> statsapi.FsStats:
        if not entry.HasField("writable_layer"):
            return statsapi.FsStats()
        layer = entry.writable_layer
        stats = statsapi.FsStats(
            time=time_from_nanoseconds(layer.timestamp),
            used_bytes=_value(layer, "used_bytes"),
            inodes_used=_value(layer, "inodes_used"),
        )
        if layer.HasField("fs_id"):
            mountpoint = layer.fs_id.mountpoint
            if mountpoint not in collection.file_systems:
                collection.file_systems[mountpoint] = self._layer_fs_info(layer)
            _add_fs_info(stats, collection.file_systems[mountpoint])
        return stats

    def _layer_fs_info(self, layer: runtimeapi.FilesystemUsage) -> cadvisorapiv2.FsInfo | None:
        """Return the file system of a container's layer, or None if it cannot be read.

        DIVERGES (safer): a container is shown without its file system's statistics if they cannot be read.
        Go: pkg/kubelet/stats/cri_stats_provider.go, (*criStatsProvider).makeContainerStats: in the Go kubelet no pod
        has statistics in this case.
        Why: one container without its mount point would prevent all evictions.
        Test: cri_stats_provider_test.py:test_file_system_that_cannot_be_looked_at_is_left_out
        """
        try:
            return self._get_fs_info(layer)
        except OSError as err:
            klog.error_s(err, "Failed to get the file system of a container's layer", mountpoint=layer.fs_id.mountpoint)
            return None

    def _make_container_cpu_and_memory_stats(
        self, entry: runtimeapi.ContainerStats, start_time: datetime | None, missing: int | None
    ) -> statsapi.ContainerStats:
        """Return the container's CPU and memory. Values that the runtime does not report become `missing`."""
        result = statsapi.ContainerStats(name=entry.attributes.metadata.name, start_time=start_time)
        if entry.HasField("cpu"):
            result.cpu = _cpu_stats(entry.cpu, self._get_container_usage_nano_cores(entry), missing)
        elif missing is not None:
            result.cpu = self._no_cpu()
        if entry.HasField("memory"):
            result.memory = memory_stats(entry.memory, missing)
        elif missing is not None:
            result.memory = memory_stats(runtimeapi.MemoryUsage(), missing)
            result.memory.time = self._clock.now()
        result.swap = _swap_stats(entry, missing)
        if result.swap is None and missing is not None:
            result.swap = self._no_swap()
        return result

    def _get_container_usage_nano_cores(self, entry: runtimeapi.ContainerStats) -> int | None:
        """Return the runtime's rate, or else the last computed one."""
        if entry.cpu.HasField("usage_nano_cores"):
            return entry.cpu.usage_nano_cores.value
        with self._lock:
            record = self._cpu_usage_cache.get(entry.attributes.id)
        return None if record is None else record.usage_nano_cores

    def _get_and_update_container_usage_nano_cores(self, entry: runtimeapi.ContainerStats) -> int | None:
        """Return the runtime's rate, or else the growth of the usage since the last call."""
        if entry.cpu.HasField("usage_nano_cores"):
            return entry.cpu.usage_nano_cores.value
        used = _value(entry.cpu, "usage_core_nano_seconds")
        if used is None:
            return None
        id, now = entry.attributes.id, entry.cpu.timestamp
        with self._lock:
            last = self._cpu_usage_cache.get(id)
            if last is None or used < last.usage_core_nano_seconds:
                self._cpu_usage_cache[id] = _CPUUsageRecord(used, now, None)
                return None
            if now > last.timestamp:
                rate = int((used - last.usage_core_nano_seconds) / (now - last.timestamp) * 1e9)
                self._cpu_usage_cache[id] = _CPUUsageRecord(used, now, rate)
                return rate
        klog.error_s(
            None, "Failed updating cpu usage nano core", err=f"zero or negative interval ({now} - {last.timestamp})"
        )
        return None

    def _cleanup_outdated_caches(self) -> None:
        """Drop old records of CPU usage.

        DIVERGES (fault of Go): records are also dropped if the runtime provides pod statistics, and if their time is in
        the future.
        Go: pkg/kubelet/stats/cri_stats_provider.go, (*criStatsProvider).cleanupOutdatedCaches: the Go kubelet does not
        drop them in these two cases.
        Why: a record of every container that ever existed would stay.
        Test: cri_stats_provider_test.py:test_nothing_is_remembered_of_another_time
        """
        # time of day: the runtime sets the times of the statistics.
        now, period = self._clock.now().timestamp() * 1e9, DEFAULT_CACHE_PERIOD * 1e9
        with self._lock:
            for id, record in list(self._cpu_usage_cache.items()):
                if abs(now - record.timestamp) > period:
                    del self._cpu_usage_cache[id]


def _of_one(ctx: golang.Context, container: runtimeapi.Container) -> AbstractContextManager[object]:
    """Contain errors of one container, so that they do not hide the others, especially from the eviction manager."""
    name = container.metadata.name
    return contain("Failed to get the statistics of a container", ctx, containerID=container.id, containerName=name)


def _is_unimplemented(err: crierror.RemoteError, what: str) -> bool:
    """Report whether the runtime does not implement the call, and log it."""
    if err.code != grpc.StatusCode.UNIMPLEMENTED:
        return False
    klog.v(5).info_s(
        f"CRI implementation must be updated to support {what} if PodAndContainerStatsFromCRI feature gate is enabled. "
        "Falling back to populating with cAdvisor; this call will fail in the future.",
        err=err,
    )
    return True


def _value(message: Message, name: str, missing: int | None = None) -> int | None:
    """Return the number in a field, or `missing` if the field is not set."""
    return getattr(message, name).value if message.HasField(name) else missing


def _cpu_stats(
    usage: runtimeapi.CpuUsage, usage_nano_cores: int | None, missing: int | None = None
) -> statsapi.CPUStats:
    return statsapi.CPUStats(
        time=time_from_nanoseconds(usage.timestamp),
        usage_nano_cores=usage_nano_cores,
        usage_core_nano_seconds=_value(usage, "usage_core_nano_seconds", missing),
        psi=_make_psi_stats(usage),
    )


def memory_stats(usage: runtimeapi.MemoryUsage, missing: int | None = None) -> statsapi.MemoryStats:
    """Return the runtime's memory statistics. Values that it does not report become `missing`."""
    return statsapi.MemoryStats(
        time=time_from_nanoseconds(usage.timestamp),
        available_bytes=_value(usage, "available_bytes", missing),
        usage_bytes=_value(usage, "usage_bytes", missing),
        working_set_bytes=_value(usage, "working_set_bytes", missing),
        rss_bytes=_value(usage, "rss_bytes", missing),
        page_faults=_value(usage, "page_faults", missing),
        major_page_faults=_value(usage, "major_page_faults", missing),
        psi=_make_psi_stats(usage),
    )


def _swap_stats(entry: runtimeapi.ContainerStats, missing: int | None = None) -> statsapi.SwapStats | None:
    if not entry.HasField("swap"):
        return None
    return statsapi.SwapStats(
        time=time_from_nanoseconds(entry.swap.timestamp),
        swap_usage_bytes=_value(entry.swap, "swap_usage_bytes", missing),
        swap_available_bytes=_value(entry.swap, "swap_available_bytes", missing),
    )


def _io_stats(message: runtimeapi.ContainerStats | runtimeapi.LinuxPodSandboxStats) -> statsapi.IOStats | None:
    if not message.HasField("io"):
        return None
    return statsapi.IOStats(time=time_from_nanoseconds(message.io.timestamp), psi=_make_psi_stats(message.io))


def _make_psi_stats(
    usage: runtimeapi.CpuUsage | runtimeapi.MemoryUsage | runtimeapi.IoUsage,
) -> statsapi.PSIStats | None:
    if not usage.HasField("psi"):
        return None
    return statsapi.PSIStats(full=_psi_data(usage.psi.Full), some=_psi_data(usage.psi.Some))


def _psi_data(data: runtimeapi.PsiData) -> statsapi.PSIData:
    return statsapi.PSIData(total=data.Total, avg10=data.Avg10, avg60=data.Avg60, avg300=data.Avg300)


def _add_fs_info(stats: statsapi.FsStats, info: cadvisorapiv2.FsInfo | None) -> None:
    """Add the totals of the file system."""
    if info is not None:
        stats.available_bytes, stats.capacity_bytes = info.available, info.capacity
        stats.inodes_free, stats.inodes = info.inodes_free, info.inodes


def build_pod_stats(sandbox: runtimeapi.PodSandbox | runtimeapi.PodSandboxStatus) -> statsapi.PodStats:
    """Return empty statistics with the pod's identity and its start time."""
    meta = sandbox.metadata
    return statsapi.PodStats(
        pod_ref=statsapi.PodReference(name=meta.name, namespace=meta.namespace, uid=meta.uid),
        start_time=time_from_nanoseconds(sandbox.created_at),
    )


def _fill_up(stats: statsapi.PodStats, fallback: statsapi.PodStats) -> None:
    """Fill in the missing values from the fallback."""
    stats.cpu = stats.cpu or fallback.cpu
    stats.memory = stats.memory or fallback.memory
    by_name = {container.name: container for container in stats.containers}
    for other in fallback.containers:
        container = by_name.get(other.name)
        if container is None:
            stats.containers.append(other)
        else:
            container.cpu = container.cpu or other.cpu
            container.memory = container.memory or other.memory


def _add_pod_network_stats(pod: statsapi.PodStats, sandbox_id: str, containers: ContainerInfos) -> None:
    """Set the network of the sandbox, which all containers of the pod share."""
    info = containers.get(sandbox_id)
    network = None if info is None else helper.cadvisor_info_to_network_stats(info)
    if network is None:
        klog.v(4).info_s("Unable to find network stats for sandbox", sandboxID=sandbox_id)
        return
    pod.network = network


def _sum(first: int | None, second: int | None) -> int:
    return (first or 0) + (second or 0)


def _add_pod_cpu_and_memory_stats(
    pod: statsapi.PodStats, pod_info: cadvisorapiv2.ContainerInfo | None, stats: statsapi.ContainerStats
) -> None:
    """Set the usage of the pod's cgroup, or add up its containers. Pressure values cannot be added up."""
    if pod_info is not None:
        pod.cpu, pod.memory = helper.cadvisor_info_to_cpu_and_memory_stats(pod_info)
        return
    if stats.cpu is not None:
        cpu = pod.cpu or statsapi.CPUStats()
        pod.cpu = statsapi.CPUStats(
            time=stats.cpu.time,
            usage_core_nano_seconds=_sum(cpu.usage_core_nano_seconds, stats.cpu.usage_core_nano_seconds),
            usage_nano_cores=_sum(cpu.usage_nano_cores, stats.cpu.usage_nano_cores),
        )
    if stats.memory is not None:
        memory = pod.memory or statsapi.MemoryStats()
        pod.memory = statsapi.MemoryStats(
            time=stats.memory.time,
            available_bytes=_sum(memory.available_bytes, stats.memory.available_bytes),
            usage_bytes=_sum(memory.usage_bytes, stats.memory.usage_bytes),
            working_set_bytes=_sum(memory.working_set_bytes, stats.memory.working_set_bytes),
            rss_bytes=_sum(memory.rss_bytes, stats.memory.rss_bytes),
            page_faults=_sum(memory.page_faults, stats.memory.page_faults),
            major_page_faults=_sum(memory.major_page_faults, stats.memory.major_page_faults),
        )


def _add_swap_stats(
    pod: statsapi.PodStats, pod_info: cadvisorapiv2.ContainerInfo | None, stats: statsapi.ContainerStats
) -> None:
    """Set the swap usage of the pod's cgroup, or add up its containers."""
    if pod_info is not None:
        pod.swap = helper.cadvisor_info_to_swap_stats(pod_info)
    elif stats.swap is not None:
        swap = pod.swap or statsapi.SwapStats()
        pod.swap = statsapi.SwapStats(
            time=stats.swap.time,
            swap_available_bytes=_sum(swap.swap_available_bytes, stats.swap.swap_available_bytes),
            swap_usage_bytes=_sum(swap.swap_usage_bytes, stats.swap.swap_usage_bytes),
        )


def _add_io_stats(
    pod: statsapi.PodStats, pod_info: cadvisorapiv2.ContainerInfo | None, stats: statsapi.ContainerStats
) -> None:
    """Set the I/O pressure of the pod's cgroup. The containers' values cannot be added up."""
    if pod_info is not None:
        pod.io = helper.cadvisor_info_to_io_stats(pod_info)
    elif stats.io is not None and pod.io is None:
        pod.io = statsapi.IOStats(time=stats.io.time)


def _pod_cpu_stats(linux: runtimeapi.LinuxPodSandboxStats) -> statsapi.CPUStats | None:
    if not linux.HasField("cpu"):
        return None
    return _cpu_stats(linux.cpu, _value(linux.cpu, "usage_nano_cores"))


def _pod_memory_stats(linux: runtimeapi.LinuxPodSandboxStats) -> statsapi.MemoryStats | None:
    return memory_stats(linux.memory) if linux.HasField("memory") else None


def _add_cri_pod_stats(pod: statsapi.PodStats, linux: runtimeapi.LinuxPodSandboxStats) -> None:
    """Set the runtime's statistics of the pod as a whole."""
    pod.cpu, pod.memory, pod.io = _pod_cpu_stats(linux), _pod_memory_stats(linux), _io_stats(linux)
    if linux.HasField("process"):
        pod.process_stats = statsapi.ProcessStats(process_count=_value(linux.process, "process_count"))
    if linux.HasField("network"):
        network = linux.network
        pod.network = statsapi.NetworkStats(
            time=time_from_nanoseconds(network.timestamp),
            interfaces=[cri_interface_to_summary(interface) for interface in network.interfaces],
        )
        helper.set_default_interface(pod.network, cri_interface_to_summary(network.default_interface))


def cri_interface_to_summary(interface: runtimeapi.NetworkInterfaceUsage) -> statsapi.InterfaceStats:
    return statsapi.InterfaceStats(
        name=interface.name,
        rx_bytes=_value(interface, "rx_bytes"),
        rx_errors=_value(interface, "rx_errors"),
        tx_bytes=_value(interface, "tx_bytes"),
        tx_errors=_value(interface, "tx_errors"),
    )


def _add_cadvisor_container_stats(stats: statsapi.ContainerStats, info: cadvisorapiv2.ContainerInfo) -> None:
    """Replace the runtime's statistics with those that cAdvisor has of the container."""
    latest = helper.latest_container_stats(info)
    cpu, memory = helper.cadvisor_info_to_cpu_and_memory_stats(info)
    if cpu is not None and latest is not None and latest.cpu_inst is None and stats.cpu is not None:
        # DIVERGES (fault of Go): while cAdvisor has only one sample, and therefore no rate, the runtime's rate stays.
        # Go: pkg/kubelet/stats/cri_stats_provider.go, (*criStatsProvider).addCadvisorContainerStats: in the Go kubelet
        # the rate becomes 0.
        # Why: a container that was just started would seem to use no CPU.
        # Test: cri_stats_provider_test.py:test_rate_that_cadvisor_does_not_know_yet
        cpu.usage_nano_cores = stats.cpu.usage_nano_cores
    stats.cpu = cpu or stats.cpu
    stats.memory = memory or stats.memory
    stats.swap = helper.cadvisor_info_to_swap_stats(info) or stats.swap


def remove_terminated_pods(pods: Iterable[runtimeapi.PodSandbox]) -> list[runtimeapi.PodSandbox]:
    """Remove terminated sandboxes if the pod has a ready one, and otherwise all but the newest.

    A pod may have several sandboxes, because its sandbox or the pod itself may be created again with the same name.
    """
    by_name: dict[tuple[str, str], list[runtimeapi.PodSandbox]] = {}
    for pod in sorted(pods, key=lambda pod: pod.created_at):
        by_name.setdefault((pod.metadata.namespace, pod.metadata.name), []).append(pod)
    result: list[runtimeapi.PodSandbox] = []
    for found in by_name.values():
        ready = [pod for pod in found if pod.state == runtimeapi.SANDBOX_READY]
        result += found if len(found) == 1 else ready or found[-1:]
    return result


def remove_terminated_containers(containers: Iterable[runtimeapi.Container]) -> list[runtimeapi.Container]:
    """Return the running containers, oldest first."""
    running = [container for container in containers if container.state == runtimeapi.CONTAINER_RUNNING]
    return sorted(running, key=lambda container: container.created_at)


def get_cri_cadvisor_stats(infos: ContainerInfos) -> tuple[ContainerInfos, ContainerInfos]:
    """Return the running containers of pods by their ids, and all cgroups by the last component of their names."""
    running, by_pod_cgroup = filter_terminated_container_info_and_assemble_by_pod_cgroup_key(infos)
    by_id = {
        extract_id_from_cgroup_path(cgroup): info
        for cgroup, info in running.items()
        # For some mounts of a container systemd also creates cgroups.
        if not cgroup.endswith(".mount") and is_pod_managed_container(info)
    }
    return by_id, by_pod_cgroup


def extract_id_from_cgroup_path(cgroup_path: str) -> str:
    """Return the container's id: the last component. The systemd driver forms cri-containerd-ID.scope from it."""
    name = posixpath.basename(cgroup_path)
    if name.endswith(".scope"):
        return name.removesuffix(".scope").rpartition("-")[2]
    return name
