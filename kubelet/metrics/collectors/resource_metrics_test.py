"""Test the metrics for metrics-server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.metrics.collectors.resource_metrics import ResourceMetricsCollector
from kubelet.server.stats import summary as stats
from pkg import golang
from pkg.component_base import metrics

MOMENT = datetime.fromtimestamp(1624396278.302, UTC)
LATER = MOMENT + timedelta(seconds=10)
HELP = {
    "node_cpu_usage_seconds_total": (
        "[STABLE] CPU time used by the node, in seconds",
        "counter",
    ),
    "node_memory_working_set_bytes": (
        "[STABLE] Working set of the node, in bytes",
        "gauge",
    ),
    "node_swap_usage_bytes": (
        "[ALPHA] Swap usage of the node, in bytes",
        "gauge",
    ),
    "container_cpu_usage_seconds_total": (
        "[STABLE] CPU time used by the container, in seconds",
        "counter",
    ),
    "container_memory_working_set_bytes": (
        "[STABLE] Working set of the container, in bytes",
        "gauge",
    ),
    "container_start_time_seconds": ("[STABLE] Start time of the container, in seconds since 1970", "gauge"),
    "container_swap_limit_bytes": (
        "[ALPHA] Swap limit of the container, in bytes",
        "gauge",
    ),
    "container_swap_usage_bytes": (
        "[ALPHA] Swap usage of the container, in bytes",
        "gauge",
    ),
    "pod_cpu_usage_seconds_total": ("[STABLE] CPU time used by the pod, in seconds", "counter"),
    "pod_memory_working_set_bytes": (
        "[STABLE] Working set of the pod, in bytes",
        "gauge",
    ),
    "pod_swap_usage_bytes": (
        "[ALPHA] Swap usage of the pod, in bytes",
        "gauge",
    ),
    "resource_scrape_error": (
        "[STABLE] 1 if reading the statistics failed, otherwise 0",
        "gauge",
    ),
}


class Provider:
    """Return one summary, or raise an error."""

    def __init__(self, summary: statsapi.Summary | None) -> None:
        self.summary = summary

    def get(self, ctx: golang.Context, update_stats: bool) -> statsapi.Summary:
        raise NotImplementedError

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> statsapi.Summary:
        if self.summary is None:
            raise stats.StatsError("failed to get summary")
        return self.summary


def cpu(nanoseconds: int | None = 10_000_000_000) -> statsapi.CPUStats:
    return statsapi.CPUStats(time=MOMENT, usage_core_nano_seconds=nanoseconds)


def memory(size: int | None = 1000) -> statsapi.MemoryStats:
    return statsapi.MemoryStats(time=MOMENT, working_set_bytes=size)


def container(name: str, age: float, swap: statsapi.SwapStats | None = None) -> statsapi.ContainerStats:
    start = MOMENT - timedelta(seconds=age)
    return statsapi.ContainerStats(name=name, start_time=start, cpu=cpu(), memory=memory(), swap=swap)


def pod(name: str, namespace: str, *containers: statsapi.ContainerStats) -> statsapi.PodStats:
    reference = statsapi.PodReference(name=name, namespace=namespace)
    return statsapi.PodStats(pod_ref=reference, containers=list(containers))


def with_node(node: statsapi.NodeStats) -> statsapi.Summary:
    return statsapi.Summary(node=node)


def with_pods(*pods: statsapi.PodStats) -> statsapi.Summary:
    return statsapi.Summary(node=statsapi.NodeStats(), pods=list(pods))


AA = 'container="container_a",namespace="namespace_a",pod="pod_a"'
BA = 'container="container_b",namespace="namespace_a",pod="pod_a"'
AB = 'container="container_a",namespace="namespace_b",pod="pod_b"'
POD = 'namespace="namespace_a",pod="pod_a"'

CASES = {
    "error getting summary": (None, ["resource_scrape_error 1"]),
    "arbitrary node metrics": (
        with_node(
            statsapi.NodeStats(cpu=cpu(), memory=memory(), swap=statsapi.SwapStats(time=MOMENT, swap_usage_bytes=500))
        ),
        [
            "node_cpu_usage_seconds_total 10 1624396278302",
            "node_memory_working_set_bytes 1000 1624396278302",
            "node_swap_usage_bytes 500 1624396278302",
            "resource_scrape_error 0",
        ],
    ),
    "node metrics with different timestamps": (
        with_node(
            statsapi.NodeStats(cpu=cpu(), memory=memory(), swap=statsapi.SwapStats(time=LATER, swap_usage_bytes=500))
        ),
        [
            "node_cpu_usage_seconds_total 10 1624396278302",
            "node_memory_working_set_bytes 1000 1624396278302",
            "node_swap_usage_bytes 500 1624396288302",
            "resource_scrape_error 0",
        ],
    ),
    "nil node metrics": (
        with_node(statsapi.NodeStats(cpu=cpu(None), memory=memory(None))),
        ["resource_scrape_error 0"],
    ),
    "arbitrary container metrics for different container, pods and namespaces": (
        with_pods(
            pod(
                "pod_a",
                "namespace_a",
                container(
                    "container_a",
                    30,
                    statsapi.SwapStats(time=MOMENT, swap_usage_bytes=1000, swap_available_bytes=9000),
                ),
                container("container_b", 120),
            ),
            pod("pod_b", "namespace_b", container("container_a", 600)),
        ),
        [
            f"container_cpu_usage_seconds_total{{{AA}}} 10 1624396278302",
            f"container_cpu_usage_seconds_total{{{BA}}} 10 1624396278302",
            f"container_cpu_usage_seconds_total{{{AB}}} 10 1624396278302",
            f"container_memory_working_set_bytes{{{AA}}} 1000 1624396278302",
            f"container_memory_working_set_bytes{{{BA}}} 1000 1624396278302",
            f"container_memory_working_set_bytes{{{AB}}} 1000 1624396278302",
            f"container_start_time_seconds{{{AA}}} 1.624396248302e+09",
            f"container_start_time_seconds{{{BA}}} 1.624396158302e+09",
            f"container_start_time_seconds{{{AB}}} 1.624395678302e+09",
            f"container_swap_limit_bytes{{{AA}}} 10000 1624396278302",
            f"container_swap_usage_bytes{{{AA}}} 1000 1624396278302",
            "resource_scrape_error 0",
        ],
    ),
    "arbitrary container metrics for negative StartTime": (
        with_pods(pod("pod_a", "namespace_a", container("container_a", 2 * 1624396278.302))),
        [
            f"container_cpu_usage_seconds_total{{{AA}}} 10 1624396278302",
            f"container_memory_working_set_bytes{{{AA}}} 1000 1624396278302",
            "resource_scrape_error 0",
        ],
    ),
    "nil container metrics": (
        with_pods(
            pod("pod_a", "namespace_a", statsapi.ContainerStats(name="container_a", cpu=cpu(None), memory=memory(None)))
        ),
        ["resource_scrape_error 0"],
    ),
    "swap that nobody uses": (
        with_pods(
            pod(
                "pod_a",
                "namespace_a",
                statsapi.ContainerStats(
                    name="container_a", swap=statsapi.SwapStats(time=MOMENT, swap_available_bytes=7)
                ),
            )
        ),
        [f"container_swap_limit_bytes{{{AA}}} 7 1624396278302", "resource_scrape_error 0"],
    ),
    "arbitrary pod metrics": (
        with_pods(
            statsapi.PodStats(
                pod_ref=statsapi.PodReference(name="pod_a", namespace="namespace_a"),
                cpu=cpu(),
                memory=memory(),
                swap=statsapi.SwapStats(time=MOMENT, swap_usage_bytes=5000),
            )
        ),
        [
            f"pod_cpu_usage_seconds_total{{{POD}}} 10 1624396278302",
            f"pod_memory_working_set_bytes{{{POD}}} 1000 1624396278302",
            f"pod_swap_usage_bytes{{{POD}}} 5000 1624396278302",
            "resource_scrape_error 0",
        ],
    ),
    "nil pod metrics": (
        with_pods(
            statsapi.PodStats(
                pod_ref=statsapi.PodReference(name="pod_a", namespace="namespace_a"),
                cpu=cpu(None),
                memory=memory(None),
                swap=statsapi.SwapStats(time=MOMENT),
            )
        ),
        ["resource_scrape_error 0"],
    ),
}


@pytest.mark.parametrize(("summary", "expected"), CASES.values(), ids=CASES.keys())
def test_collect_resource_metrics(summary: statsapi.Summary | None, expected: list[str]) -> None:
    registry = metrics.KubeRegistry()
    registry.must_register(ResourceMetricsCollector(Provider(summary)))
    lines = registry.expose().decode().splitlines()
    assert [line for line in lines if line[0] != "#"] == expected
    shown = dict.fromkeys(line.partition("{")[0].partition(" ")[0] for line in expected)
    about = [line for name in shown for line in (f"# HELP {name} {HELP[name][0]}", f"# TYPE {name} {HELP[name][1]}")]
    assert [line for line in lines if line[0] == "#"] == about
