"""Test counters, gauges and histograms.

Go: k8s.io/component-base/metrics
"""

from __future__ import annotations

import prometheus_client
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubelet import metrics as kubeletmetrics
from pkg.component_base import metrics
from pkg.component_base.metrics import metrics as metricsfile


def expose(*collectors: Collector) -> list[str]:
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


@pytest.mark.parametrize("buckets", [(0.5, 1.0, 3600.0), (-1.0, 2.5e6)])
@pytest.mark.parametrize("labels", [(), ("zone",), ("kind", "pod", "zone")])
def test_histogram_is_that_of_the_library(labels: tuple[str, ...], buckets: tuple[float, ...]) -> None:
    ours = metrics.new_histogram("h", "Help.", labels, buckets)
    theirs = prometheus_client.Histogram("h", "[ALPHA] Help.", labels, registry=None, buckets=buckets)
    for each in (ours, theirs):
        for number in range(3 if labels else 1):
            child = each.labels(*(f'{label} "{number}"\n\\' for label in labels)) if labels else each
            for value in (0.1, 0.7, 7000.0):
                child.observe(value * (number + 1))
    assert [family.samples for family in ours.collect()] == [
        [sample for sample in family.samples if not sample.name.endswith("_created")] for family in theirs.collect()
    ]
    assert expose(ours) == expose(theirs)
    if labels:
        (of_one,) = ours.labels(*(["one"] * len(labels))).collect()
        assert [sample.labels for sample in of_one.samples if sample.name == "h_count"] == [{}]


def test_labels_of_a_histogram_are_written_once_for_all_its_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels of a histogram are formatted once for all its buckets.

    The probes of one container alone have dozens of buckets, and pods may have thousands of containers.
    """
    written: list[str] = []
    pair = metricsfile._pair

    def count(key: str, value: str) -> str:
        written.append(value)
        return pair(key, value)

    monkeypatch.setattr(metricsfile, "_pair", count)
    histogram = metrics.new_histogram("h", "Help.", ["container", "pod"])
    for number in range(10):
        histogram.labels(f"c{number}", "p").observe(1)
    assert len(expose(histogram)) == 2 + 10 * (len(metrics.DEF_BUCKETS) + 3)
    assert len(written) == 2 * 10


def test_labels_without_values_are_left_out() -> None:
    assert expose(metrics.new_gauge("g", "G.", ["a"]), metrics.new_histogram("h", "H.", ["a"])) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-3, "-3"),
        (0.005, "0.005"),
        (1e-9, "1e-09"),
        (0.0001, "0.0001"),
        (0.00001234, "1.234e-05"),
        (600000, "600000"),
        (1000000, "1e+06"),
        (1048576, "1.048576e+06"),
        (1795278496.18, "1.79527849618e+09"),
        (-25e6, "-2.5e+07"),
        (1.5e300, "1.5e+300"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_are_written_as_in_go(value: float, text: str) -> None:
    gauge = metrics.new_gauge("g", "G.")
    gauge.set(value)
    assert expose(gauge)[2] == f"g {text}"


def test_timestamps() -> None:
    family = GaugeMetricFamily("g", "G.", labels=["a"])
    family.add_metric(["x"], 1, timestamp=1700000000.25)

    class Timed(Collector):
        def collect(self) -> list[GaugeMetricFamily]:
            return [family]

    assert expose(Timed())[2] == 'g{a="x"} 1 1700000000250'


def test_foreign_counter() -> None:
    foreign = prometheus_client.Counter("x", "X.", registry=None)
    assert expose(foreign) == ["# HELP x_total X.", "# TYPE x_total counter", "x_total 0"]


def test_buckets() -> None:
    assert metrics.exponential_buckets(1, 2, 4) == (1, 2, 4, 8)
    bounds = metrics.exponential_buckets_range(0.1, 40, 15)
    # These are the bounds that a Go kubelet shows.
    assert (bounds[0], bounds[5], bounds[11], bounds[14]) == (
        0.1,
        0.849781240983936,
        11.078365961221499,
        39.99999999999997,
    )


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
