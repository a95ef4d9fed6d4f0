"""Provide a node whose statistics the test sets.

Go: pkg/kubelet/server/stats/testing
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubelet import cm
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from pkg import golang, volume
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1

if TYPE_CHECKING:
    from kubelet.server.stats.handler import Provider


@dataclass
class FakeProvider:
    """Return what the test sets. A method that is named in `errors` raises that error."""

    node: v1.Node = field(default_factory=lambda: v1.Node(metadata=metav1.ObjectMeta(name="test-node")))
    node_config: cm.NodeConfig = field(default_factory=cm.NodeConfig)
    pods: list[v1.Pod] = field(default_factory=list)
    pod_stats: list[statsapi.PodStats] = field(default_factory=list)
    # The keys are cgroup names. Both kinds of request use these statistics.
    cgroups: dict[str, statsapi.ContainerStats] = field(default_factory=dict)
    network: statsapi.NetworkStats | None = None
    root_fs: statsapi.FsStats = field(default_factory=statsapi.FsStats)
    image_fs: statsapi.FsStats = field(default_factory=statsapi.FsStats)
    container_fs: statsapi.FsStats = field(default_factory=statsapi.FsStats)
    # The keys are pod UIDs.
    volumes: dict[str, dict[str, volume.Volume]] = field(default_factory=dict)
    block_volumes: dict[str, dict[str, volume.BlockVolume]] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    # The fake records the called methods with their arguments here.
    calls: list[str] = field(default_factory=list)

    def _called(self, method: str, detail: str = "") -> None:
        self.calls.append(f"{method}{detail}")
        if method in self.errors:
            raise self.errors[method]

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        self._called("list_pod_stats")
        return self.pod_stats

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        self._called("list_pod_cpu_and_memory_stats")
        return self.pod_stats

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        self._called("list_pod_stats_and_update_cpu_nano_core_usage")
        return self.pod_stats

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        self._called("list_pod_disk_stats")
        return self.pod_stats

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        self._called("image_fs_stats")
        return self.image_fs, self.container_fs

    def get_cgroup_stats(
        self, cgroup_name: str, update_stats: bool
    ) -> tuple[statsapi.ContainerStats, statsapi.NetworkStats | None]:
        self._called("get_cgroup_stats", f" {cgroup_name} {update_stats}")
        return self._cgroup(cgroup_name), self.network

    def get_cgroup_cpu_and_memory_stats(self, cgroup_name: str, update_stats: bool) -> statsapi.ContainerStats:
        self._called("get_cgroup_cpu_and_memory_stats", f" {cgroup_name} {update_stats}")
        return self._cgroup(cgroup_name)

    def _cgroup(self, name: str) -> statsapi.ContainerStats:
        if name not in self.cgroups:
            raise LookupError(f'unknown container "{name}"')
        return self.cgroups[name]

    def root_fs_stats(self) -> statsapi.FsStats:
        self._called("root_fs_stats")
        return self.root_fs

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        self._called("get_requested_containers_info")
        return {}

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        wanted = (namespace, name)
        return next((pod for pod in self.pods if (pod.metadata.namespace, pod.metadata.name) == wanted), None)

    def get_node(self, ctx: golang.Context) -> v1.Node:
        self._called("get_node")
        return self.node

    def get_node_config(self) -> cm.NodeConfig:
        return self.node_config

    def list_volumes_for_pod(self, pod_uid: types.UID) -> dict[str, volume.Volume]:
        self._called("list_volumes_for_pod")
        return self.volumes.get(pod_uid, {})

    def list_block_volumes_for_pod(self, pod_uid: types.UID) -> dict[str, volume.BlockVolume]:
        return self.block_volumes.get(pod_uid, {})

    def get_pods(self) -> list[v1.Pod]:
        return self.pods

    def rlimit_stats(self) -> statsapi.RlimitStats:
        self._called("rlimit_stats")
        return statsapi.RlimitStats(max_pid=10)

    def get_pod_cgroup_root(self) -> str:
        return "/kubepods"

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None:
        return None


class FakeMeasuredVolume:
    """Return or raise `answer` when the volume is measured. While the volume is blocked, the measurement waits."""

    def __init__(self, answer: volume.Metrics | Exception, supported: bool = True) -> None:
        self.answer = answer
        self.asked = 0
        self.while_asked: Callable[[], object] = lambda: None
        self._supported = supported
        self._free = threading.Event()
        self._free.set()

    def block(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def supports_metrics(self) -> bool:
        return self._supported

    def get_metrics(self) -> volume.Metrics:
        self.asked += 1
        self.while_asked()
        self._free.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


if TYPE_CHECKING:
    _: Provider = FakeProvider()
