"""Combine all statistics of the node and its pods in one summary.

Go: pkg/kubelet/server/stats/summary.go, summary_sys_containers.go
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubelet import util
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cri import errors as crierror
from pkg import golang, klog
from pkg.apimachinery.api import errors as apierrors

if TYPE_CHECKING:
    from kubelet import cm
    from kubelet.server.stats.handler import Provider

# The provider raises these errors.
_FAULTS = (crierror.RemoteError, apierrors.StatusError, OSError, ValueError, LookupError)


class StatsError(Exception):
    """Signal that there is no summary, because a part of it is not available."""


class SummaryProvider(Protocol):
    """Define how callers get summaries. Any thread may call it, and both methods raise StatsError."""

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary: ...

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> statsapi.Summary: ...


class _SystemContainer(NamedTuple):
    """Describe a cgroup that belongs to no pod, and its name in the summary.

    The start time is set if the kubelet knows a more exact one than the cgroup.
    """

    name: str
    cgroup: str
    force_stats_update: bool = False
    start_time: datetime | None = None


class SummaryProviderImpl:
    """Make a summary from the provider's statistics."""

    def __init__(self, stats_provider: Provider) -> None:
        self._provider = stats_provider
        self._kubelet_creation_time = datetime.now(UTC)
        self._system_boot_time: datetime | None = None
        try:
            self._system_boot_time = util.get_boot_time()
        except OSError as err:
            klog.info_s("Error getting system boot time. Node metrics will have an incorrect start time", err=err)

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        summary = self.get_node(ctx, update_stats)
        with _needed("list pod stats"):
            if update_stats:
                summary.pods = self._provider.list_pod_stats_and_update_cpu_nano_core_usage(ctx)
            else:
                summary.pods = self._provider.list_pod_stats(ctx)
        return summary

    def get_node(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return the summary without pods."""
        provider = self._provider
        with _needed("get node info"):
            node = provider.get_node(ctx)
        with _needed("get root cgroup stats"):
            root, network = provider.get_cgroup_stats("/", update_stats)
        with _needed("get rootFs stats"):
            root_fs = provider.root_fs_stats()
        with _needed("get imageFs stats"):
            image_fs, container_fs = provider.image_fs_stats(ctx)
        with _needed("get rlimit stats"):
            rlimit = provider.rlimit_stats()
        return statsapi.Summary(
            node=statsapi.NodeStats(
                node_name=node.metadata.name,
                cpu=root.cpu,
                memory=root.memory,
                swap=root.swap,
                io=root.io,
                network=network,
                start_time=self._system_boot_time,
                fs=root_fs,
                runtime=statsapi.RuntimeStats(container_fs=container_fs, image_fs=image_fs),
                rlimit=rlimit,
                system_containers=self.get_system_containers_stats(provider.get_node_config(), update_stats),
            ),
        )

    def get_disks(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        """Return the summary with only the disk statistics of pods."""
        summary = self.get_node(ctx, update_stats)
        with _needed("list pod stats"):
            summary.pods = self._provider.list_pod_disk_stats(ctx)
        return summary

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> statsapi.Summary:
        provider = self._provider
        with _needed("get node info"):
            node = provider.get_node(ctx)
        with _needed("get root cgroup stats"):
            root = provider.get_cgroup_cpu_and_memory_stats("/", False)
        with _needed("list pod stats"):
            pods = provider.list_pod_cpu_and_memory_stats(ctx)
        system_containers = self.get_system_containers_cpu_and_memory_stats(provider.get_node_config(), False)
        return statsapi.Summary(
            node=statsapi.NodeStats(
                node_name=node.metadata.name,
                cpu=root.cpu,
                memory=root.memory,
                swap=root.swap,
                start_time=root.start_time,
                system_containers=system_containers,
            ),
            pods=pods,
        )

    def get_system_containers_stats(
        self, node_config: cm.NodeConfig, update_stats: bool
    ) -> list[statsapi.ContainerStats]:
        """Return the statistics of the configured cgroups of the kubelet, the runtime, other daemons and all pods."""
        found: list[statsapi.ContainerStats] = []
        for container in self._system_containers(node_config, update_stats):
            try:
                stats, _ = self._provider.get_cgroup_stats(container.cgroup, container.force_stats_update)
            except _FAULTS as err:
                klog.error_s(err, "Failed to get system container stats", containerName=container.cgroup)
                continue
            stats.logs = stats.rootfs = None
            found.append(_as_system_container(stats, container))
        return found

    def get_system_containers_cpu_and_memory_stats(
        self, node_config: cm.NodeConfig, update_stats: bool
    ) -> list[statsapi.ContainerStats]:
        """Return the CPU and memory statistics of the same cgroups."""
        found: list[statsapi.ContainerStats] = []
        for container in self._system_containers(node_config, update_stats):
            try:
                stats = self._provider.get_cgroup_cpu_and_memory_stats(container.cgroup, container.force_stats_update)
            except LookupError:
                klog.v(4).info_s("cgroup stats not found in memory cache", containerName=container.cgroup)
                continue
            except _FAULTS as err:
                klog.error_s(err, "Failed to get system container stats", containerName=container.cgroup)
                continue
            found.append(_as_system_container(stats, container))
        return found

    def _system_containers(self, node_config: cm.NodeConfig, update_stats: bool) -> list[_SystemContainer]:
        """Return the system containers that have a cgroup."""
        containers = (
            _SystemContainer(
                statsapi.SYSTEM_CONTAINER_KUBELET,
                node_config.kubelet_cgroups_name,
                start_time=self._kubelet_creation_time,
            ),
            _SystemContainer(statsapi.SYSTEM_CONTAINER_RUNTIME, node_config.runtime_cgroups_name),
            _SystemContainer(statsapi.SYSTEM_CONTAINER_MISC, node_config.system_cgroups_name),
            _SystemContainer(statsapi.SYSTEM_CONTAINER_PODS, self._provider.get_pod_cgroup_root(), update_stats),
        )
        return [container for container in containers if container.cgroup]


def _as_system_container(stats: statsapi.ContainerStats, container: _SystemContainer) -> statsapi.ContainerStats:
    stats.name = container.name
    stats.start_time = container.start_time or stats.start_time
    return stats


@contextmanager
def _needed(what: str) -> Iterator[None]:
    """Raise StatsError for an error in the `with` block, because the summary needs the block's result."""
    try:
        yield
    except _FAULTS as err:
        raise StatsError(f"failed to {what}: {err}") from err
