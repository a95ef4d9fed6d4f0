"""Test the metrics of the runtime."""

from __future__ import annotations

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import errors as crierror
from kubelet.metrics.collectors.cri_metrics import CRIMetricsCollector
from pkg import golang
from pkg.component_base import metrics

DESCRIPTORS = [
    runtimeapi.MetricDescriptor(name="container_cpu_total", help="Time.", label_keys=["id", "cpu"]),
    runtimeapi.MetricDescriptor(name="pod_memory", help="Size.", label_keys=["id"]),
]
GONE = crierror.RemoteError(grpc.StatusCode.UNAVAILABLE, "gone")


def metric(name: str, value: int, labels: list[str], timestamp: int = 0, gauge: bool = False) -> runtimeapi.Metric:
    kind = runtimeapi.MetricType.GAUGE if gauge else runtimeapi.MetricType.COUNTER
    amount = runtimeapi.UInt64Value(value=value)
    return runtimeapi.Metric(name=name, timestamp=timestamp, metric_type=kind, label_values=labels, value=amount)


class Runtime:
    """Represent a runtime with metrics."""

    def __init__(self, *pods: runtimeapi.PodSandboxMetrics) -> None:
        self.pods = list(pods)
        self.descriptors = list(DESCRIPTORS)
        self.descriptors_err: Exception | None = None
        self.metrics_err: Exception | None = None

    def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]:
        if self.descriptors_err is not None:
            raise self.descriptors_err
        return self.descriptors

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[runtimeapi.PodSandboxMetrics]:
        if self.metrics_err is not None:
            raise self.metrics_err
        return self.pods

    def page(self) -> str:
        registry = metrics.KubeRegistry()
        registry.must_register(
            CRIMetricsCollector(golang.background(), self.list_pod_sandbox_metrics, self.list_metric_descriptors)
        )
        return registry.expose().decode()


def a_pod() -> runtimeapi.PodSandboxMetrics:
    return runtimeapi.PodSandboxMetrics(
        pod_sandbox_id="box",
        metrics=[metric("pod_memory", 4096, ["box"], gauge=True)],
        container_metrics=[
            runtimeapi.ContainerMetrics(
                container_id="app",
                metrics=[
                    metric("container_cpu_total", 7, ["app", "total"], 1_000_000_000_500_000_000),
                    metric("never_announced", 1, []),
                    metric("container_cpu_total", 8, ["one label too few"]),
                    runtimeapi.Metric(name="pod_memory", metric_type=7, label_values=["histogram"]),  # type: ignore[arg-type]
                ],
            )
        ],
    )


def test_metrics_of_pods_and_containers() -> None:
    assert Runtime(a_pod()).page() == (
        "# HELP container_cpu_total [INTERNAL] Time.\n"
        "# TYPE container_cpu_total counter\n"
        'container_cpu_total{cpu="total",id="app"} 7 1000000000500\n'
        "# HELP pod_memory [INTERNAL] Size.\n"
        "# TYPE pod_memory gauge\n"
        'pod_memory{id="box"} 4096\n'
    )


def test_runtime_that_does_not_announce_any() -> None:
    runtime = Runtime(a_pod())
    runtime.descriptors_err = GONE
    assert runtime.page() == ""


def test_runtime_that_does_not_answer() -> None:
    runtime = Runtime(a_pod())
    runtime.metrics_err = GONE
    assert runtime.page() == ""


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("", []),
        ("two words", []),
        ("twice", ["id", "id"]),
        ("no_label", [""]),
        ("line", ['a="b"} 1\n']),
        ("own", ["__name__"]),
    ],
)
def test_descriptor_that_the_text_format_cannot_have_costs_its_metric_alone(name: str, labels: list[str]) -> None:
    runtime = Runtime(a_pod())
    page = runtime.page()
    runtime.descriptors.append(runtimeapi.MetricDescriptor(name=name, label_keys=labels))
    runtime.pods[0].metrics.append(metric(name, 1, ["x"] * len(labels)))
    assert runtime.page() == page


def test_label_with_the_name_of_a_bucket_may_have_any_value() -> None:
    pod = runtimeapi.PodSandboxMetrics(metrics=[metric("level", 1, ["high"], gauge=True)])
    runtime = Runtime(pod)
    runtime.descriptors = [runtimeapi.MetricDescriptor(name="level", label_keys=["le"])]
    assert runtime.page().endswith('level{le="high"} 1\n')
