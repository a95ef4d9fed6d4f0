"""Provide the statistics of the node and its pods from all sources.

Go: pkg/kubelet/stats/provider.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet import cadvisor as kubecadvisor
from kubelet import container as kubecontainer
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.stats import helper, pidlimit
from pkg import golang
from pkg.api.core import v1


class ContainerStatsProvider(Protocol):
    """Define how statistics of pods are collected. Any thread may call it.

    All methods raise crierror.RemoteError, OSError, ValueError and LookupError.
    """

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        """Return one pod's statistics with those of its running containers."""
        ...

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]: ...

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]: ...

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return what pods use of the node's disk. Go always has all statistics, and has no such method."""
        ...

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]: ...

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        """Return the file systems of the images and of the containers' writable layers."""
        ...

    def image_fs_device(self, ctx: golang.Context) -> str:
        """Return the device of the images."""
        ...

    def container_fs_device(self, ctx: golang.Context) -> str:
        """Return the device of the containers' writable layers."""
        ...


class Provider:
    """Combine a provider of pod statistics with cAdvisor's statistics of the node. Any thread may call this class."""

    def __init__(self, cadvisor: kubecadvisor.Interface, container_stats_provider: ContainerStatsProvider) -> None:
        self._cadvisor = cadvisor
        self._containers = container_stats_provider

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        return self._containers.pod_cpu_and_memory_stats(ctx, pod, pod_status)

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self._containers.list_pod_stats(ctx)

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self._containers.list_pod_stats_and_update_cpu_nano_core_usage(ctx)

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self._containers.list_pod_disk_stats(ctx)

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self._containers.list_pod_cpu_and_memory_stats(ctx)

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        return self._containers.image_fs_stats(ctx)

    def rlimit_stats(self) -> statsapi.RlimitStats:
        """Return the number of tasks and their limit. Raise OSError and ValueError."""
        return pidlimit.stats()

    def get_cgroup_stats(
        self, cgroup_name: str, update_stats: bool
    ) -> tuple[statsapi.ContainerStats, statsapi.NetworkStats | None]:
        """Return a cgroup's statistics. Raise LookupError if there is no such cgroup, and OSError."""
        info = helper.get_cgroup_info(self._cadvisor, cgroup_name, update_stats)
        stats = helper.cadvisor_info_to_container_stats(cgroup_name, info)
        return stats, helper.cadvisor_info_to_network_stats(info)

    def get_cgroup_cpu_and_memory_stats(self, cgroup_name: str, update_stats: bool) -> statsapi.ContainerStats:
        """Return a cgroup's CPU and memory. Raise LookupError if there is no such cgroup, and OSError."""
        info = helper.get_cgroup_info(self._cadvisor, cgroup_name, update_stats)
        return helper.cadvisor_info_to_container_cpu_and_memory_stats(cgroup_name, info)

    def root_fs_stats(self) -> statsapi.FsStats:
        """Return the file system of the kubelet's root directory. Raise OSError and LookupError."""
        info = self._cadvisor.root_fs_info()
        # Only the time of these statistics is used.
        root = helper.get_cgroup_stats(self._cadvisor, "/", False)
        return statsapi.FsStats(
            time=root.timestamp,
            available_bytes=info.available,
            capacity_bytes=info.capacity,
            used_bytes=info.usage,
            inodes_free=info.inodes_free,
            inodes=info.inodes,
            inodes_used=helper.inodes_used(info),
        )

    def has_dedicated_image_fs(self, ctx: golang.Context) -> bool:
        """Report whether images, or containers' layers, are on another device than the kubelet's root directory.

        DIVERGES (fault of Go): containers' layers count as separate if they are on another device.
        Go: pkg/kubelet/stats/provider.go, (*Provider).HasDedicatedImageFs: the Go kubelet compares the usage of the two
        file systems.
        Why: one file system would count as two if its usage changes between the two measurements.
        Test: provider_test.py:test_dedicated_file_systems
        """
        root = self._cadvisor.root_fs_info().device
        return self._containers.image_fs_device(ctx) != root or self._containers.container_fs_device(ctx) != root

    def has_dedicated_container_fs(self, ctx: golang.Context) -> bool:
        """Report whether containers' layers are on another device than images.

        DIVERGES (fault of Go): the runtime reports the devices of images and containers' layers.
        Go: pkg/kubelet/stats/provider.go, (*Provider).HasDedicatedContainerFs: the Go kubelet asks cAdvisor, which
        knows them only for CRI-O; any other runtime causes an error, and nothing counts as separate.
        Why: when the disk of the layers fills up, the eviction manager would rank pods by their usage of another disk.
        Test: provider_test.py:test_dedicated_file_systems
        """
        return self._containers.container_fs_device(ctx) != self._containers.image_fs_device(ctx)
