"""Export the disk usage of container logs.

Go: pkg/kubelet/metrics/collectors/log_metrics.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from kubelet.cri import errors as crierror
from pkg import golang, klog
from pkg.component_base import metrics

if TYPE_CHECKING:
    from kubelet.apis.stats import v1alpha1 as statsapi


class LogMetricsCollector:
    """Collect the sizes for prometheus_client. Each scrape requests the pods' statistics."""

    def __init__(self, pod_stats: Callable[[golang.Context], list[statsapi.PodStats]]) -> None:
        self._pod_stats = pod_stats

    def describe(self) -> list[GaugeMetricFamily]:
        return [_family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = _family()
        try:
            pods = self._pod_stats(golang.background())
        except (crierror.RemoteError, OSError, ValueError, LookupError) as err:
            klog.error_s(err, "Failed to get pod stats")
            return
        for pod in pods:
            ref = pod.pod_ref
            for container in pod.containers:
                if container.logs is not None and container.logs.used_bytes is not None:
                    labels = [ref.uid, ref.namespace, ref.name, container.name]
                    family.add_metric(labels, container.logs.used_bytes)
        if family.samples:
            yield family


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "kubelet_container_log_filesystem_used_bytes",
        metrics.annotated_help("Bytes used by the container's logs on the filesystem."),
        labels=["uid", "namespace", "pod", "container"],
    )
