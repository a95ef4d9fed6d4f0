"""Test the metrics pages of the machine and its containers."""

from __future__ import annotations

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.cri import errors as crierror
from kubelet.server import metric_pages
from kubelet.server import metrics as servermetrics
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang.http import testing as httptest

POD_CGROUP = "/kubepods/burstable/pod1"
POD = v1.Pod(metadata=metav1.ObjectMeta(name="web", namespace="default"))
LABELS = {
    "io.kubernetes.pod.name": "db",
    "io.kubernetes.pod.namespace": "prod",
    "io.kubernetes.container.name": "app",
    "other": "label",
}


class Host:
    """Represent a kubelet with one pod."""

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        return {POD_CGROUP: container(POD_CGROUP)}

    def get_version_info(self) -> cadvisorapi.VersionInfo:
        return cadvisorapi.VersionInfo()

    def get_cached_machine_info(self) -> cadvisorapi.MachineInfo:
        return cadvisorapi.MachineInfo(2, 1024)

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None:
        return POD if cgroupfs == POD_CGROUP else None

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[runtimeapi.PodSandboxMetrics]:
        value = runtimeapi.UInt64Value(value=1)
        made = runtimeapi.Metric(name="made_by_the_runtime", value=value)
        return [runtimeapi.PodSandboxMetrics(metrics=[made])]

    def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]:
        return [runtimeapi.MetricDescriptor(name="made_by_the_runtime", help="One.")]

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        raise NotImplementedError

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> statsapi.Summary:
        node = statsapi.NodeStats(cpu=statsapi.CPUStats(usage_core_nano_seconds=5_000_000_000))
        return statsapi.Summary(node=node)


def container(
    name: str, labels: dict[str, str] | None = None, aliases: list[str] | None = None
) -> cadvisorapi.ContainerInfo:
    reference = cadvisorapi.ContainerReference(name, aliases=aliases or [])
    image = "busybox" if labels else ""
    return cadvisorapi.ContainerInfo(reference, cadvisorapi.ContainerSpec(labels=labels or {}, image=image))


def page(path: str) -> str:
    host = Host()
    recorded = httptest.record(metric_pages.metric_handlers(host, host)[path], "GET", path)
    assert recorded.status == 200
    assert recorded.headers.get("Content-Type").startswith("text/plain; version=0.0.4")
    return recorded.text


def labels(**values: str) -> dict[str, str]:
    return dict.fromkeys(("container", "id", "image", "name", "namespace", "pod"), "") | values


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param(container("/"), labels(id="/"), id="machine"),
        pytest.param(
            container("/kubepods/pod2/abc", LABELS, ["abc", "/kubepods/pod2/abc"]),
            labels(container="app", id="/kubepods/pod2/abc", image="busybox", name="abc", namespace="prod", pod="db"),
            id="container",
        ),
        pytest.param(container(POD_CGROUP), labels(id=POD_CGROUP, namespace="default", pod="web"), id="pod"),
        pytest.param(container("/kubepods/pod3"), labels(id="/kubepods/pod3"), id="pod that is gone"),
    ],
)
def test_labels(info: cadvisorapi.ContainerInfo, expected: dict[str, str]) -> None:
    assert metric_pages.container_prometheus_labels_func(Host().get_pod_by_cgroupfs)(info) == expected


def test_cadvisor_page() -> None:
    text = page("/metrics/cadvisor")
    start = 'container_start_time_seconds{container="",id="/kubepods/burstable/pod1",image="",name="",'
    assert f'{start}namespace="default",pod="web"}} 0\n' in text
    assert "machine_memory_bytes{" in text
    assert metricstesting.value(servermetrics.METRICS_PROVIDER.labels("cadvisor")) == 1


def test_cadvisor_page_of_the_runtime() -> None:
    with set_feature_gate_during_test(features.feature_gate, features.POD_AND_CONTAINER_STATS_FROM_CRI, True):
        text = page("/metrics/cadvisor")
    assert "made_by_the_runtime 1\n" in text
    assert "machine_memory_bytes{" in text
    assert "container_start_time_seconds" not in text
    assert metricstesting.value(servermetrics.METRICS_PROVIDER.labels("cri")) == 1


def test_resource_page() -> None:
    text = page("/metrics/resource")
    assert "node_cpu_usage_seconds_total 5\n" in text
    assert "resource_scrape_error 0\n" in text


def test_runtime_that_is_not_there_yet() -> None:
    class Broken(Host):
        def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]:
            raise crierror.RemoteError(grpc.StatusCode.UNAVAILABLE, "gone")

    host = Broken()
    with set_feature_gate_during_test(features.feature_gate, features.POD_AND_CONTAINER_STATS_FROM_CRI, True):
        assert set(metric_pages.metric_handlers(host, host)) == {"/metrics/cadvisor", "/metrics/resource"}
