"""Go: staging/src/k8s.io/component-base/metrics"""

from __future__ import annotations

import prometheus_client

from kubelet import metrics as kubeletmetrics
from pkg.component_base import metrics


def expose(*collectors: metrics.Counter | prometheus_client.Gauge | prometheus_client.Histogram) -> list[str]:
    registry = prometheus_client.CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return metrics.expose(registry).decode().splitlines()


def test_counter_keeps_its_name() -> None:
    plain = metrics.new_counter("kubelet_evictions", "Pods.", ["signal"])
    total = metrics.new_counter("kubelet_starts_total", "Starts.")
    plain.labels('a"\\\n').inc()
    total.inc(2)
    assert expose(total, plain) == [
        "# HELP kubelet_evictions [ALPHA] Pods.",
        "# TYPE kubelet_evictions counter",
        'kubelet_evictions{signal="a\\"\\\\\\n"} 1',
        "# HELP kubelet_starts_total [ALPHA] Starts.",
        "# TYPE kubelet_starts_total counter",
        "kubelet_starts_total 2",
    ]


def test_histogram() -> None:
    histogram = metrics.new_histogram("h", "H.", buckets=(0.5, 1.0))
    histogram.observe(0.75)
    assert expose(histogram) == [
        "# HELP h [ALPHA] H.",
        "# TYPE h histogram",
        'h_bucket{le="0.5"} 0',
        'h_bucket{le="1"} 1',
        'h_bucket{le="+Inf"} 1',
        "h_count 1",
        "h_sum 0.75",
    ]


def test_foreign_counter() -> None:
    foreign = prometheus_client.Counter("x", "X.", registry=None)
    assert expose(foreign) == ["# HELP x_total X.", "# TYPE x_total counter", "x_total 0"]  # type: ignore[arg-type]


def test_buckets() -> None:
    assert metrics.exponential_buckets(1, 2, 4) == (1, 2, 4, 8)
    low, *_, high = metrics.exponential_buckets_range(0.1, 40, 15)
    assert (low, round(high, 6)) == (0.1, 40)


def test_kubelet_metrics_register_once() -> None:
    kubeletmetrics.register()
    kubeletmetrics.register()
    names = {family.name for family in kubeletmetrics.get_gather().collect()}
    assert {"kubelet_pleg_discard_events", "kubelet_running_pods", "kubelet_evictions"} <= names


def test_image_size_bucket() -> None:
    mib = 1024**2
    sizes = [0, 1, 10 * mib, 10 * mib + 1, 200 * mib, 10**12]
    labels = [kubeletmetrics.get_image_size_bucket(size) for size in sizes]
    assert labels == ["N/A", "0-10MB", "0-10MB", "10MB-100MB", "100MB-500MB", "GT100GB"]
