"""Provide distinguishable statistics, and a fake for the disk usage of pods.

Go: pkg/kubelet/stats/provider_test.go, host_stats_provider_fake.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v1 as cadvisorapiv1
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.server import stats as serverstats
from kubelet.stats.helper import root_fs_info_to_fs_stats
from pkg.apimachinery import types

TIMESTAMP = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
CREATION_TIME = datetime(2026, 1, 2, 3, 0, 0, 0, UTC)


def psi(seed: int) -> cadvisorapiv1.PSIStats:
    return cadvisorapiv1.PSIStats(
        full=cadvisorapiv1.PSIData(total=seed + 1, avg10=1.0, avg60=2.0, avg300=3.0),
        some=cadvisorapiv1.PSIData(total=seed + 2, avg10=4.0, avg60=5.0, avg300=6.0),
    )


def container_info(
    seed: int, pod_name: str = "", pod_namespace: str = "", container_name: str = ""
) -> cadvisorapiv2.ContainerInfo:
    """Return a cgroup whose values are the seed plus an offset. With names it belongs to a pod's container."""
    labels = {}
    if pod_name:
        labels = {
            kubetypes.KUBERNETES_POD_NAME_LABEL: pod_name,
            kubetypes.KUBERNETES_POD_UID_LABEL: f"UID{pod_name}",
            kubetypes.KUBERNETES_POD_NAMESPACE_LABEL: pod_namespace,
            kubetypes.KUBERNETES_CONTAINER_NAME_LABEL: container_name,
        }
    spec = cadvisorapiv2.ContainerSpec(
        creation_time=CREATION_TIME,
        has_cpu=True,
        has_memory=True,
        has_network=True,
        has_processes=True,
        has_disk_io=True,
        memory=cadvisorapiv1.MemorySpec(limit=2**64 - 1, swap_limit=seed + 1000),
        labels=labels,
    )
    return cadvisorapiv2.ContainerInfo(spec, [container_stats(seed)])


def container_stats(seed: int) -> cadvisorapiv2.ContainerStats:
    eth0 = cadvisorapiv1.InterfaceStats(
        name="eth0", rx_bytes=seed + 21, rx_errors=seed + 22, tx_bytes=seed + 23, tx_errors=seed + 24
    )
    cbr0 = cadvisorapiv1.InterfaceStats(name="cbr0", rx_bytes=1)
    return cadvisorapiv2.ContainerStats(
        timestamp=TIMESTAMP,
        cpu=cadvisorapiv1.CpuStats(usage=cadvisorapiv1.CpuUsage(total=seed + 10), psi=psi(seed)),
        cpu_inst=cadvisorapiv2.CpuInstStats(usage=cadvisorapiv2.CpuInstUsage(total=seed + 11)),
        memory=cadvisorapiv1.MemoryStats(
            usage=seed + 12,
            working_set=seed + 13,
            rss=seed + 14,
            swap=seed + 15,
            container_data=cadvisorapiv1.MemoryStatsMemoryData(pgfault=seed + 16, pgmajfault=seed + 17),
            psi=psi(seed + 100),
        ),
        disk_io=cadvisorapiv1.DiskIoStats(psi=psi(seed + 200)),
        network=cadvisorapiv2.NetworkStats(interfaces=[eth0, cbr0]),
        processes=cadvisorapiv1.ProcessStats(process_count=seed + 18),
    )


def fs_info(seed: int) -> cadvisorapiv2.FsInfo:
    return cadvisorapiv2.FsInfo(
        timestamp=TIMESTAMP,
        device="/dev/test",
        mountpoint="/",
        capacity=seed + 31,
        available=seed + 32,
        usage=seed + 33,
        inodes=seed + 3400,
        inodes_free=seed + 35,
    )


@dataclass
class FakeResourceAnalyzer:
    """Return the same volumes for every pod."""

    volumes: serverstats.PodVolumeStats | None = None

    def get_pod_volume_stats(self, uid: types.UID) -> serverstats.PodVolumeStats | None:
        return self.volumes


@dataclass
class FakeHostStatsProvider:
    """Return usage in bytes and inodes by namespace/pod or namespace/pod/container. Raise for any other name."""

    logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    # The keys are pod UIDs.
    etc_hosts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def get_pod_log_stats(
        self, pod_namespace: str, pod_name: str, pod_uid: types.UID, root_fs_info: cadvisorapiv2.FsInfo
    ) -> statsapi.FsStats:
        return self._stats(f"{pod_namespace}/{pod_name}", root_fs_info)

    def get_pod_container_log_stats(
        self,
        pod_namespace: str,
        pod_name: str,
        pod_uid: types.UID,
        container_name: str,
        root_fs_info: cadvisorapiv2.FsInfo,
    ) -> statsapi.FsStats:
        return self._stats(f"{pod_namespace}/{pod_name}/{container_name}", root_fs_info)

    def _stats(self, name: str, root_fs_info: cadvisorapiv2.FsInfo) -> statsapi.FsStats:
        if name not in self.logs:
            raise FileNotFoundError(name)
        return _used(root_fs_info, self.logs[name])

    def get_pod_etc_hosts_stats(
        self, pod_uid: types.UID, root_fs_info: cadvisorapiv2.FsInfo
    ) -> statsapi.FsStats | None:
        return _used(root_fs_info, self.etc_hosts[pod_uid]) if pod_uid in self.etc_hosts else None


def _used(root_fs_info: cadvisorapiv2.FsInfo, usage: tuple[int, int]) -> statsapi.FsStats:
    stats = root_fs_info_to_fs_stats(root_fs_info)
    stats.used_bytes, stats.inodes_used = usage
    return stats
