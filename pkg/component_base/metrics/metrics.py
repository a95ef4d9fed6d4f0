"""Counters, gauges and histograms with exactly the names that they are given.

Go: staging/src/k8s.io/component-base/metrics
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import prometheus_client
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pkg import golang

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class StabilityLevel(enum.StrEnum):
    """How long a metric is promised to stay as it is. In front of each help text."""

    INTERNAL = "INTERNAL"
    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = "STABLE"


@dataclass(frozen=True, slots=True)
class Stability:
    level: StabilityLevel
    # The minor release, such as "1.36", since which the metric is on its way out; empty if it is not.
    deprecated_version: str


_stability: WeakKeyDictionary[Collector, Stability] = WeakKeyDictionary()

# What a family is of.
COUNTER = "counter"
GAUGE = "gauge"

DEF_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """`count` bounds from `start` on, each `factor` times the one before."""
    return tuple(start * factor**i for i in range(count))


def exponential_buckets_range(minimum: float, maximum: float, count: int) -> tuple[float, ...]:
    """`count` bounds from minimum to maximum, evenly spaced on a logarithmic scale."""
    factor = (maximum / minimum) ** (1 / (count - 1))
    return tuple(minimum * _power(factor, i) for i in range(count))


def _power(base: float, exponent: int) -> float:
    """By squaring, as Go does it: bounds are label values, which have to be the same to the last digit."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


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
        return new_family(self._exact_name, self._documentation, COUNTER)


def new_counter(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    *,
    level: StabilityLevel = StabilityLevel.ALPHA,
    deprecated_version: str = "",
) -> Counter:
    """A counter; the help text is shown with the level, and the deprecation if any, in front."""
    counter = Counter(name, annotated_help(help, level, deprecated_version), labels)
    _stability[counter] = Stability(level, deprecated_version)
    return counter


def new_gauge(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    *,
    level: StabilityLevel = StabilityLevel.ALPHA,
    deprecated_version: str = "",
) -> prometheus_client.Gauge:
    """A gauge, as `new_counter` for its help text."""
    gauge = prometheus_client.Gauge(name, annotated_help(help, level, deprecated_version), labels, registry=None)
    _stability[gauge] = Stability(level, deprecated_version)
    return gauge


def new_histogram(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    buckets: Sequence[float] = DEF_BUCKETS,
    *,
    level: StabilityLevel = StabilityLevel.ALPHA,
    deprecated_version: str = "",
) -> prometheus_client.Histogram:
    """A histogram, as `new_counter` for its help text."""
    text = annotated_help(help, level, deprecated_version)
    histogram = prometheus_client.Histogram(name, text, labels, registry=None, buckets=buckets)
    _stability[histogram] = Stability(level, deprecated_version)
    return histogram


def annotated_help(help: str, level: StabilityLevel = StabilityLevel.ALPHA, deprecated_version: str = "") -> str:
    """The help text as it is shown. For collectors, which make their families themselves."""
    deprecation = f"(Deprecated since {deprecated_version}) " if deprecated_version else ""
    return f"[{level}] {deprecation}{help}"


def new_family(name: str, help: str, type: str) -> Metric:
    """A family with exactly this name, and no samples yet. For collectors, which make theirs when asked."""
    family = Metric(name, help, "unknown")
    family.type = type  # set afterwards: the constructor cuts _total off a counter's name
    return family


def stability_of(collector: Collector) -> Stability | None:
    """What a metric was made with; None for a collector that computes its metrics when asked."""
    return _stability.get(collector)


def expose(registry: prometheus_client.CollectorRegistry) -> bytes:
    """All metrics of the registry in the Prometheus text format, by name."""
    lines: list[str] = []
    # What labels look like, by the identity of their dict: collectors use one for many samples of a subject.
    texts: dict[int, str] = {}
    families = sorted(registry.collect(), key=lambda family: family.name)
    for family in families:
        lines.extend(_family_lines(family, texts))
    # A label may be the name of a container's network interface or mount, which is bytes.
    return golang.encode_valid_utf8("".join(line + "\n" for line in lines))


def _family_lines(family: Metric, texts: dict[int, str]) -> Iterator[str]:
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if not samples:
        return  # labels that never had a value: upstream's library leaves the family out
    # Counters that other collectors bring end in _total, and their family's name does not.
    foreign = family.type == "counter" and any(sample.name != family.name for sample in samples)
    name = f"{family.name}_total" if foreign else family.name
    text = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {'untyped' if family.type == 'unknown' else family.type}"
    for sample in samples:
        moment = f" {int(float(sample.timestamp) * 1000)}" if sample.timestamp is not None else ""
        labels = texts.get(id(sample.labels))
        if labels is None:
            labels = texts[id(sample.labels)] = _labels(sample.labels)
        yield f"{sample.name}{labels} {_number(float(sample.value))}{moment}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{key}="{_label_value(key, value)}"' for key, value in sorted(labels.items()))
    return f"{{{','.join(pairs)}}}"


def _label_value(key: str, value: str) -> str:
    if key == "le":  # a bucket's bound
        return _number(float(value))
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """As Go writes it, with an exponent from a million on: 1, 0.005, 1.048576e+06. Queries take bounds as text."""
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    if 1e-4 <= abs(value) < 1e6:
        return repr(value)
    return _with_exponent(value)


def _with_exponent(value: float) -> str:
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' if value < 0 else ''}{digits[0]}{tail}e{point - 1:+03d}"
