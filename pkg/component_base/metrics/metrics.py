"""Make counters, gauges and histograms with exactly the given names.

Go: k8s.io/component-base/metrics
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import prometheus_client
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from pkg import golang

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class StabilityLevel(enum.StrEnum):
    """List the levels of stability, which say how long a metric is guaranteed to stay unchanged.

    Each help text begins with its level.
    """

    INTERNAL = "INTERNAL"
    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = "STABLE"


@dataclass(frozen=True, slots=True)
class Stability:
    level: StabilityLevel
    # `deprecated_version` is the minor release, such as "1.36", in which the metric was deprecated, or "" if it was
    # not.
    deprecated_version: str


_stability: WeakKeyDictionary[Collector, Stability] = WeakKeyDictionary()

# These are types of metric families.
COUNTER = "counter"
GAUGE = "gauge"

DEF_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` bounds that begin with `start`, each `factor` times the previous one."""
    return tuple(start * factor**i for i in range(count))


def exponential_buckets_range(minimum: float, maximum: float, count: int) -> tuple[float, ...]:
    """Return `count` bounds from minimum to maximum, evenly spaced on a logarithmic scale."""
    factor = (maximum / minimum) ** (1 / (count - 1))
    return tuple(minimum * _power(factor, i) for i in range(count))


def _power(base: float, exponent: int) -> float:
    """Return the power by repeated squaring, as Go does.

    Bounds are label values, which must be identical to Go's in every digit.
    """
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


class Counter(prometheus_client.Counter):
    """Count events under exactly the given name.

    The library would append _total to the name, which upstream's names often lack.
    """

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


class Series(NamedTuple):
    """Hold the counts of a histogram for one set of labels."""

    labels: dict[str, str]
    # `counts` holds the number of observations up to each bound.
    counts: list[float]
    # `sum` is the sum of all observations, or None for a histogram with bounds below zero.
    sum: float | None


class HistogramFamily(Metric):
    """Represent the samples of a histogram, which are made only on request.

    The lines of a page are made without samples.
    """

    def __init__(self, name: str, documentation: str, bounds: Sequence[float], series: Sequence[Series]) -> None:
        self._bounds = bounds
        self._series = series
        super().__init__(name, documentation, "histogram")

    @property
    def samples(self) -> list[Sample]:
        """Return the samples as the library makes them, except for the creation time, which no page shows."""
        return [sample for series in self._series for sample in self._samples_of(series)]

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        """Ignore the empty list with which the library begins."""

    def _samples_of(self, series: Series) -> Iterator[Sample]:
        for bound, count in zip(self._bounds, series.counts, strict=True):
            le = floatToGoString(bound)  # type: ignore[no-untyped-call]
            yield Sample(f"{self.name}_bucket", {**series.labels, "le": le}, count)
        yield Sample(f"{self.name}_count", series.labels, series.counts[-1])
        if series.sum is not None:
            yield Sample(f"{self.name}_sum", series.labels, series.sum)

    def lines(self) -> Iterator[str]:
        """Yield the lines of all samples; the labels that the samples of a series share are formatted only once."""
        bounds = [_number(bound) for bound in self._bounds]
        for series in self._series:
            pairs = [(key, _pair(key, value)) for key, value in sorted(series.labels.items())]
            before = "".join(f"{pair}," for key, pair in pairs if key < "le")
            after = "".join(f",{pair}" for key, pair in pairs if key > "le")
            for bound, count in zip(bounds, series.counts, strict=True):
                yield f'{self.name}_bucket{{{before}le="{bound}"{after}}} {_number(count)}'
            labels = f"{{{','.join(pair for _, pair in pairs)}}}" if pairs else ""
            yield f"{self.name}_count{labels} {_number(series.counts[-1])}"
            if series.sum is not None:
                yield f"{self.name}_sum{labels} {_number(series.sum)}"


class Histogram(prometheus_client.Histogram):
    """Count observations by size, and make lines efficiently.

    The library would make a separate sample with its own labels for each bucket.
    """

    def collect(self) -> Iterable[Metric]:
        if not self._is_parent():  # type: ignore[no-untyped-call]
            series = [self._series({})]
        else:
            with self._lock:
                children: list[tuple[Sequence[str], Histogram]] = list(self._metrics.items())  # type: ignore[arg-type]
            series = [child._series(dict(zip(self._labelnames, labels, strict=True))) for labels, child in children]
        return [HistogramFamily(self._name, self._documentation, self._upper_bounds, series)]

    def _series(self, labels: dict[str, str]) -> Series:
        counts = list(itertools.accumulate(bucket.get() for bucket in self._buckets))
        return Series(labels, counts, self._sum.get() if self._upper_bounds[0] >= 0 else None)


def new_counter(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    *,
    level: StabilityLevel = StabilityLevel.ALPHA,
    deprecated_version: str = "",
) -> Counter:
    """Return a counter; its help text begins with the level and any deprecation."""
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
    """Return a gauge; its help text begins with the level and any deprecation."""
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
) -> Histogram:
    """Return a histogram; its help text begins with the level and any deprecation."""
    text = annotated_help(help, level, deprecated_version)
    histogram = Histogram(name, text, labels, registry=None, buckets=buckets)
    _stability[histogram] = Stability(level, deprecated_version)
    return histogram


def annotated_help(help: str, level: StabilityLevel = StabilityLevel.ALPHA, deprecated_version: str = "") -> str:
    """Return the full help text, for collectors that make their own families."""
    deprecation = f"(Deprecated since {deprecated_version}) " if deprecated_version else ""
    return f"[{level}] {deprecation}{help}"


def new_family(name: str, help: str, type: str) -> Metric:
    """Return a family with exactly this name and no samples, for collectors that make samples on request."""
    family = Metric(name, help, "unknown")
    family.type = type  # The type is set here because the constructor would remove _total from a counter's name.
    return family


def stability_of(collector: Collector) -> Stability | None:
    """Return a metric's stability, or None for a collector that computes its metrics on request."""
    return _stability.get(collector)


def expose(registry: prometheus_client.CollectorRegistry) -> bytes:
    """Return all metrics of the registry in the Prometheus text format, sorted by name."""
    lines: list[str] = []
    # `texts` maps the identity of a dict of labels to the formatted labels. Collectors share one dict among the samples
    # of a subject.
    texts: dict[int, str] = {}
    families = sorted(registry.collect(), key=lambda family: family.name)
    for family in families:
        lines.extend(_family_lines(family, texts))
    # A label may contain the name of a container's network interface or mount, which may be invalid UTF-8.
    return golang.encode_valid_utf8("".join(line + "\n" for line in lines))


def _family_lines(family: Metric, texts: dict[int, str]) -> Iterator[str]:
    name = family.name
    if isinstance(family, HistogramFamily):
        lines = list(family.lines())
    else:
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        lines = [_line(sample, texts) for sample in samples]
        # The counters of other collectors end in _total, unlike the names of their families.
        if family.type == "counter" and any(sample.name != name for sample in samples):
            name = f"{name}_total"
    if not lines:
        return  # None of the labels ever had a value; upstream's library leaves such a family out.
    text = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {'untyped' if family.type == 'unknown' else family.type}"
    yield from lines


def _line(sample: Sample, texts: dict[int, str]) -> str:
    moment = f" {int(float(sample.timestamp) * 1000)}" if sample.timestamp is not None else ""
    labels = texts.get(id(sample.labels))
    if labels is None:
        labels = texts[id(sample.labels)] = _labels(sample.labels)
    return f"{sample.name}{labels} {_number(float(sample.value))}{moment}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return f"{{{','.join(_pair(key, value) for key, value in sorted(labels.items()))}}}"


def _pair(key: str, value: str) -> str:
    if key == "le":
        # This is a bucket's bound, unless a container runtime uses the label name for other text.
        with contextlib.suppress(ValueError):
            return f'le="{_number(float(value))}"'
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'{key}="{value}"'


def _number(value: float) -> str:
    """Return the number as Go writes it, with an exponent from a million on: 1, 0.005, 1.048576e+06.

    Queries compare bounds as text.
    """
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
