"""Figures of the node and its pods, wherever they come from.

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
    """Figures of pods; safe from any thread.

    All methods raise crierror.RemoteError, OSError, ValueError and LookupError.
    """

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        """One pod and its running containers."""
        ...

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]: ...

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]: ...

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """What pods take of the node's disk. Go has all figures at hand, and no such method."""
        ...

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]: ...

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        """The file systems of images and of containers' writable layers."""
        ...

    def image_fs_device(self, ctx: golang.Context) -> str:
        """The device that images are on."""
        ...

    def container_fs_device(self, ctx: golang.Context) -> str:
        """The device that containers' writable layers are on."""
        ...


class Provider:
    """What a containers' provider knows of pods, and cAdvisor of the node; safe from any thread."""

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
        """Raises OSError and ValueError."""
        return pidlimit.stats()

    def get_cgroup_stats(
        self, cgroup_name: str, update_stats: bool
    ) -> tuple[statsapi.ContainerStats, statsapi.NetworkStats | None]:
        """Raises LookupError when there is no such cgroup, OSError."""
        info = helper.get_cgroup_info(self._cadvisor, cgroup_name, update_stats)
        stats = helper.cadvisor_info_to_container_stats(cgroup_name, info)
        return stats, helper.cadvisor_info_to_network_stats(info)

    def get_cgroup_cpu_and_memory_stats(self, cgroup_name: str, update_stats: bool) -> statsapi.ContainerStats:
        """Raises LookupError when there is no such cgroup, OSError."""
        info = helper.get_cgroup_info(self._cadvisor, cgroup_name, update_stats)
        return helper.cadvisor_info_to_container_cpu_and_memory_stats(cgroup_name, info)

    def root_fs_stats(self) -> statsapi.FsStats:
        """Raises OSError and LookupError."""
        info = self._cadvisor.root_fs_info()
        # Only for its time.
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
        """Whether images, or containers' layers, are elsewhere than the kubelet's root directory.

        DIVERGES (fault of Go): containers' layers count as elsewhere if they are on another device.
        Go: pkg/kubelet/stats/provider.go, (*Provider).HasDedicatedImageFs: compares how full the two file systems are.
        Why: one file system would count as two if somebody writes to it between two looks.
        Test: provider_test.py:test_dedicated_file_systems
        """
        root = self._cadvisor.root_fs_info().device
        return self._containers.image_fs_device(ctx) != root or self._containers.container_fs_device(ctx) != root

    def has_dedicated_container_fs(self, ctx: golang.Context) -> bool:
        """Whether containers' layers are elsewhere than images.

        DIVERGES (fault of Go): the runtime says on which devices it keeps images and containers' layers.
        Go: pkg/kubelet/stats/provider.go, (*Provider).HasDedicatedContainerFs: cAdvisor does, of CRI-O alone; of any
        other runtime that is an error, and nothing counts as elsewhere.
        Why: when the disk of layers fills up, pods would be chosen for eviction by what they use of another disk.
        Test: provider_test.py:test_dedicated_file_systems
        """
        return self._containers.container_fs_device(ctx) != self._containers.image_fs_device(ctx)
