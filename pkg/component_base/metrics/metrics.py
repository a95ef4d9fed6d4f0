"""Counters, gauges and histograms with exactly the names that they are given.

Go: staging/src/k8s.io/component-base/metrics
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import prometheus_client
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

DEF_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """`count` bounds from `start` on, each `factor` times the one before."""
    return tuple(start * factor**i for i in range(count))


def exponential_buckets_range(minimum: float, maximum: float, count: int) -> tuple[float, ...]:
    """`count` bounds from minimum to maximum, evenly spaced on a logarithmic scale."""
    return exponential_buckets(minimum, (maximum / minimum) ** (1 / (count - 1)), count)


class Counter(prometheus_client.Counter):
    """A count that only grows. The library would end its name in _total; upstream's names often do not."""

    def __init__(self, name: str, documentation: str, labelnames: Iterable[str] = (), **kwargs: Any) -> None:
        self._exact_name = name
        super().__init__(name, documentation, labelnames, **{**kwargs, "registry": None})

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for sample in self._samples():
            if sample.name == "_total":
                family.add_sample(self._exact_name, sample.labels, sample.value)
        return [family]

    def _family(self) -> Metric:
        family = Metric(self._exact_name, self._documentation, "unknown")
        family.type = "counter"  # set afterwards: the constructor cuts _total off a counter's name
        return family


def new_counter(name: str, help: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(name, help, labels)


def new_gauge(name: str, help: str, labels: Sequence[str] = ()) -> prometheus_client.Gauge:
    return prometheus_client.Gauge(name, help, labels, registry=None)


def new_histogram(
    name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = DEF_BUCKETS
) -> prometheus_client.Histogram:
    return prometheus_client.Histogram(name, help, labels, registry=None, buckets=buckets)


def expose(registry: prometheus_client.CollectorRegistry) -> bytes:
    """All metrics of the registry in the Prometheus text format, by name."""
    lines: list[str] = []
    for family in sorted(registry.collect(), key=lambda family: family.name):
        lines.extend(_family_lines(family))
    return "".join(line + "\n" for line in lines).encode()


def _family_lines(family: Metric) -> Iterator[str]:
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    # Counters that other collectors bring end in _total, and their family's name does not.
    foreign = family.type == "counter" and any(sample.name != family.name for sample in samples)
    name = f"{family.name}_total" if foreign else family.name
    text = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {'untyped' if family.type == 'unknown' else family.type}"
    for sample in samples:
        yield f"{sample.name}{_labels(sample)} {_number(float(sample.value))}"


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    pairs = (f'{key}="{_label_value(key, value)}"' for key, value in sorted(sample.labels.items()))
    return f"{{{','.join(pairs)}}}"


def _label_value(key: str, value: str) -> str:
    if key == "le":  # a bucket's bound
        return _number(float(value))
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """As Go writes it: 1 and not 1.0."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
