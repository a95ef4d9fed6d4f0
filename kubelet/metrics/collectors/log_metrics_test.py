"""Test the sizes of logs.

Go: pkg/kubelet/metrics/collectors/log_metrics_test.go
"""

from __future__ import annotations

import prometheus_client

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.metrics.collectors.log_metrics import LogMetricsCollector
from pkg import golang
from pkg.component_base import metrics


def exposed(collector: LogMetricsCollector) -> list[str]:
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    return metrics.expose(registry).decode().splitlines()


def test_metrics_collected() -> None:
    pod = statsapi.PodStats(
        pod_ref=statsapi.PodReference(namespace="some-namespace", name="podName1", uid="UID_some_id"),
        containers=[
            statsapi.ContainerStats(name="containerName1", logs=statsapi.FsStats(used_bytes=18)),
            statsapi.ContainerStats(name="nobody knows", logs=statsapi.FsStats()),
            statsapi.ContainerStats(name="without logs"),
        ],
    )
    assert exposed(LogMetricsCollector(lambda ctx: [pod])) == [
        "# HELP kubelet_container_log_filesystem_used_bytes "
        "[ALPHA] Bytes used by the container's logs on the filesystem.",
        "# TYPE kubelet_container_log_filesystem_used_bytes gauge",
        'kubelet_container_log_filesystem_used_bytes{container="containerName1",namespace="some-namespace",'
        'pod="podName1",uid="UID_some_id"} 18',
    ]


def test_nothing_without_stats() -> None:
    def fail(ctx: golang.Context) -> list[statsapi.PodStats]:
        raise OSError("the runtime is gone")

    assert exposed(LogMetricsCollector(fail)) == []
