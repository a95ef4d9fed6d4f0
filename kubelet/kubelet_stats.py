"""Provide the statistics of the node and its pods, from the statistics provider.

Go: pkg/kubelet/kubelet.go (from ListPodStats to RlimitStats)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet.apis.stats import v1alpha1 as statsapi
from pkg import klog
from pkg.api.v1 import pod as podutil

if TYPE_CHECKING:
    from kubelet import cadvisor as kubecadvisor
    from kubelet import container as kubecontainer
    from kubelet import pod as kubepod
    from kubelet import stats
    from kubelet.cadvisor.info import v2 as cadvisorapiv2
    from kubelet.server import stats as serverstats
    from pkg import golang
    from pkg.api.core import v1


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletStats:
    """Provide the statistics of the node and its pods. Any thread may call these methods.

    The methods raise crierror.RemoteError, OSError, ValueError and LookupError.
    """

    cadvisor: kubecadvisor.Interface
    pod_manager: kubepod.Manager
    # The providers have the statistics of the node, its pods and the pods' logs; the analyzer has those of the pods'
    # volumes.
    stats_provider: stats.Provider
    host_stats_provider: stats.HostStatsProvider
    resource_analyzer: serverstats.ResourceAnalyzer

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_stats(ctx)

    def list_pod_storage_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return only the disk usage of container logs and of pods' volumes.

        Go computes the metrics of these from list_pod_stats.
        """
        root_fs = self.cadvisor.root_fs_info()
        return [self._storage_stats(pod, root_fs) for pod in self.pod_manager.get_pods()]

    def _storage_stats(self, pod: v1.Pod, root_fs: cadvisorapiv2.FsInfo) -> statsapi.PodStats:
        meta = pod.metadata
        ref = statsapi.PodReference(name=meta.name, namespace=meta.namespace, uid=meta.uid)
        stats = statsapi.PodStats(pod_ref=ref)
        volumes = self.resource_analyzer.get_pod_volume_stats(meta.uid)
        if volumes is not None:
            stats.volume_stats = volumes.ephemeral_volumes + volumes.persistent_volumes
        for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS):
            try:
                logs = self.host_stats_provider.get_pod_container_log_stats(
                    meta.namespace, meta.name, meta.uid, container.name, root_fs
                )
            except FileNotFoundError:
                # The container has never started.
                continue
            except OSError as err:
                # Other containers' statistics are still useful. For example, a pod's name may be too long for a log
                # directory.
                klog.v(4).info_s(
                    "Unable to fetch container log stats", pod=klog.kobj(pod), containerName=container.name, err=err
                )
                continue
            stats.containers.append(statsapi.ContainerStats(name=container.name, logs=logs))
        return stats

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_cpu_and_memory_stats(ctx)

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        return self.stats_provider.pod_cpu_and_memory_stats(ctx, pod, pod_status)

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_stats_and_update_cpu_nano_core_usage(ctx)

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        return self.stats_provider.list_pod_disk_stats(ctx)

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
