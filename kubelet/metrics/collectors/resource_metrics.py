"""Export the CPU and memory usage of the node, pods and containers, for example to metrics-server.

Go: pkg/kubelet/metrics/collectors/resource_metrics.go
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kubelet.server.stats import summary as stats
from pkg import golang, klog
from pkg.component_base import metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kubelet.apis.stats import v1alpha1 as statsapi

_EPOCH = datetime.fromtimestamp(0, UTC)

_FAMILIES: dict[str, tuple[str, str, metrics.StabilityLevel]] = {
    "node_cpu_usage_seconds_total": (
        "CPU time used by the node, in seconds",
        metrics.COUNTER,
        metrics.STABLE,
    ),
    "node_memory_working_set_bytes": (
        "Working set of the node, in bytes",
        metrics.GAUGE,
        metrics.STABLE,
    ),
    "node_swap_usage_bytes": (
        "Swap usage of the node, in bytes",
        metrics.GAUGE,
        metrics.ALPHA,
    ),
    "container_start_time_seconds": (
        "Start time of the container, in seconds since 1970",
        metrics.GAUGE,
        metrics.STABLE,
    ),
    "container_cpu_usage_seconds_total": (
        "CPU time used by the container, in seconds",
        metrics.COUNTER,
        metrics.STABLE,
    ),
    "container_memory_working_set_bytes": (
        "Working set of the container, in bytes",
        metrics.GAUGE,
        metrics.STABLE,
    ),
    "container_swap_usage_bytes": (
        "Swap usage of the container, in bytes",
        metrics.GAUGE,
        metrics.ALPHA,
    ),
    "container_swap_limit_bytes": (
        "Swap limit of the container, in bytes",
        metrics.GAUGE,
        metrics.ALPHA,
    ),
    "pod_cpu_usage_seconds_total": (
        "CPU time used by the pod, in seconds",
        metrics.COUNTER,
        metrics.STABLE,
    ),
    "pod_memory_working_set_bytes": (
        "Working set of the pod, in bytes",
        metrics.GAUGE,
        metrics.STABLE,
    ),
    "pod_swap_usage_bytes": (
        "Swap usage of the pod, in bytes",
        metrics.GAUGE,
        metrics.ALPHA,
    ),
    "resource_scrape_error": (
        "1 if reading the statistics failed, otherwise 0",
        metrics.GAUGE,
        metrics.STABLE,
    ),
}


class ResourceMetricsCollector:
    """Collect the usage for prometheus_client. Each scrape requests a summary and shows the containers in it.

    Go's scrape_error is omitted, because it is deprecated since 1.29 and hidden.
    """

    def __init__(self, provider: stats.SummaryProvider) -> None:
        self._provider = provider

    def describe(self) -> list[Metric]:
        """Return nothing, because the metrics are only known at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        page = _Page()
        failed = 0
        try:
            summary = self._provider.get_cpu_and_memory_stats(golang.background())
        except stats.StatsError as err:
            klog.error_s(err, "Error getting summary for resourceMetric prometheus endpoint")
            failed = 1
        else:
            _collect_node(page, summary.node)
            for pod in summary.pods:
                _collect_pod(page, pod)
        page.add("resource_scrape_error", {}, failed)
        return iter(page.families.values())


class _Page:
    """Hold the metric families, to which samples are added."""

    def __init__(self) -> None:
        self.families = {name: _family(name) for name in _FAMILIES}

    def add(self, name: str, labels: dict[str, str], value: float | None, time: datetime | None = None) -> None:
        """Add a sample, unless its value is unknown."""
        if value is not None:
            self.families[name].add_sample(name, labels, value, time.timestamp() if time is not None else None)


def _family(name: str) -> Metric:
    help, type, level = _FAMILIES[name]
    return metrics.new_family(name, metrics.annotated_help(help, level), type)


def _collect_node(page: _Page, node: statsapi.NodeStats) -> None:
    _collect_usage(page, "node", {}, node.cpu, node.memory)
    _collect_swap(page, "node", {}, node.swap)


def _collect_pod(page: _Page, pod: statsapi.PodStats) -> None:
    labels = {"pod": pod.pod_ref.name, "namespace": pod.pod_ref.namespace}
    for container in pod.containers:
        _collect_container(page, labels | {"container": container.name}, container)
    _collect_usage(page, "pod", labels, pod.cpu, pod.memory)
    _collect_swap(page, "pod", labels, pod.swap)


def _collect_container(page: _Page, labels: dict[str, str], container: statsapi.ContainerStats) -> None:
    start_time = container.start_time
    if start_time is not None and start_time > _EPOCH:
        page.add("container_start_time_seconds", labels, start_time.timestamp())
    _collect_usage(page, "container", labels, container.cpu, container.memory)
    _collect_swap(page, "container", labels, container.swap)
    swap = container.swap
    if swap is not None and swap.swap_available_bytes is not None:
        limit = swap.swap_available_bytes + (swap.swap_usage_bytes or 0)
        page.add("container_swap_limit_bytes", labels, limit, swap.time)


def _collect_usage(
    page: _Page,
    subject: str,
    labels: dict[str, str],
    cpu: statsapi.CPUStats | None,
    memory: statsapi.MemoryStats | None,
) -> None:
    """Add the CPU and memory usage of the node, a pod or a container."""
    if cpu is not None and cpu.usage_core_nano_seconds is not None:
        page.add(f"{subject}_cpu_usage_seconds_total", labels, cpu.usage_core_nano_seconds / 1e9, cpu.time)
    if memory is not None:
        page.add(f"{subject}_memory_working_set_bytes", labels, memory.working_set_bytes, memory.time)


def _collect_swap(page: _Page, subject: str, labels: dict[str, str], swap: statsapi.SwapStats | None) -> None:
    if swap is not None:
        page.add(f"{subject}_swap_usage_bytes", labels, swap.swap_usage_bytes, swap.time)
