"""The kubelet as what knows figures: it passes on what its provider says.

Go: pkg/kubelet/kubelet.go (ListPodStats … RlimitStats)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet.kubelet_struct import KubeletStruct

if TYPE_CHECKING:
    from kubelet import container as kubecontainer
    from kubelet.apis.stats import v1alpha1 as statsapi
    from pkg import golang
    from pkg.api.core import v1


class KubeletStats(KubeletStruct):
    """Figures of the node and its pods; safe from any thread.

    The methods raise crierror.RemoteError, OSError, ValueError and LookupError.
    """

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_stats(ctx)

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_cpu_and_memory_stats(ctx)

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        return self.stats_provider.pod_cpu_and_memory_stats(ctx, pod, pod_status)

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_stats_and_update_cpu_nano_core_usage(ctx)

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        return self.stats_provider.image_fs_stats(ctx)

    def get_cgroup_stats(
        self, cgroup_name: str, update_stats: bool
    ) -> tuple[statsapi.ContainerStats, statsapi.NetworkStats | None]:
        return self.stats_provider.get_cgroup_stats(cgroup_name, update_stats)

    def get_cgroup_cpu_and_memory_stats(self, cgroup_name: str, update_stats: bool) -> statsapi.ContainerStats:
        return self.stats_provider.get_cgroup_cpu_and_memory_stats(cgroup_name, update_stats)

    def root_fs_stats(self) -> statsapi.FsStats:
        return self.stats_provider.root_fs_stats()

    def rlimit_stats(self) -> statsapi.RlimitStats:
        return self.stats_provider.rlimit_stats()
