"""Test the statistics that the kubelet computes itself."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from kubelet import cadvisor, stats
from kubelet import pod as kubepod
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.container import RealOS
from kubelet.kubelet_stats import KubeletStats
from kubelet.metrics import get_gather
from kubelet.server import stats as serverstats
from kubelet.stats.host_stats_provider import HostStatsProviderImpl
from kubelet.stats.testing import FakeHostStatsProvider, FakeResourceAnalyzer
from kubelet.testing import TestKubelet, new_pod
from pkg import golang
from pkg.api.core import v1


def new_stats(logs: stats.HostStatsProvider, volumes: FakeResourceAnalyzer | None = None) -> KubeletStats:
    """Return an object for statistics, without any pod."""
    machine, analyzer = cadvisor.Cadvisor(), volumes or FakeResourceAnalyzer()
    return KubeletStats(
        cadvisor=machine,
        pod_manager=kubepod.BasicManager(),
        # These tests do not read the usage of containers.
        stats_provider=cast(stats.Provider, None),
        host_stats_provider=logs,
        resource_analyzer=cast(serverstats.ResourceAnalyzer, analyzer),
    )


def test_list_pod_storage_stats() -> None:
    claim = statsapi.VolumeStats(name="v", pvc_ref=statsapi.PVCReference(name="claim", namespace="ns"), used_bytes=5)
    analyzer = FakeResourceAnalyzer(serverstats.PodVolumeStats([statsapi.VolumeStats(name="local")], [claim]))
    kubelet = new_stats(FakeHostStatsProvider({"ns/pod/init": (10, 1), "ns/pod/main": (20, 2)}), analyzer)
    containers = [v1.Container(name="main"), v1.Container(name="not started")]
    kubelet.pod_manager.set_pods([new_pod("pod", containers=containers, init_containers=[v1.Container(name="init")])])
    (found,) = kubelet.list_pod_storage_stats(golang.background())
    assert found.pod_ref == statsapi.PodReference(name="pod", namespace="ns", uid="uid-pod")
    assert [volume.name for volume in found.volume_stats] == ["local", "v"]
    logs = {container.name: container.logs.used_bytes for container in found.containers if container.logs is not None}
    assert logs == {"init": 10, "main": 20}


def test_pod_whose_logs_cannot_be_measured_does_not_hide_the_others(tmp_path: Path) -> None:
    kubelet = new_stats(HostStatsProviderImpl(RealOS(), lambda uid: "", str(tmp_path)))
    (tmp_path / "ns_pod_uid-pod" / "c").mkdir(parents=True)
    (tmp_path / "ns_pod_uid-pod" / "c" / "0.log").write_text("line")
    kubelet.pod_manager.set_pods([new_pod("a" * 253), new_pod("pod")])
    found = {pod.pod_ref.name: pod.containers for pod in kubelet.list_pod_storage_stats(golang.background())}
    assert found["a" * 253] == []
    assert [container.name for container in found["pod"]] == ["c"]


def test_metrics_are_there_for_as_long_as_the_kubelet(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    """If a process has two kubelets, the first one exports the statistics of its pods."""
    kubelet = test_kubelet.kubelet
    kubelet.host_stats_provider = FakeHostStatsProvider({"ns/pod/c": (10, 1)})
    kubelet.pod_manager.set_pods([new_pod("pod")])
    labels = {"uid": "uid-pod", "namespace": "ns", "pod": "pod", "container": "c"}

    def shown() -> float | None:
        return get_gather().get_sample_value("kubelet_container_log_filesystem_used_bytes", labels)

    ctx, cancel = golang.with_cancel(golang.background())
    kubelet._register_collectors(ctx)
    kubelet._register_collectors(ctx)
    assert shown() == 10
    cancel()
    assert shown() is None


def test_get_pod_by_cgroupfs(test_kubelet: TestKubelet) -> None:
    assert test_kubelet.kubelet.get_pod_by_cgroupfs("/kubepods/poduid-pod") is None, "pods have no cgroups in this test"
