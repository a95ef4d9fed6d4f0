"""Test the kubelet's metrics against upstream's, which testdata/upstream.tsv lists. docs/metrics.md lists the others.

Go: pkg/kubelet/metrics/metrics_test.go
"""

from __future__ import annotations

import importlib
import math
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import prometheus_client
import pytest
from prometheus_client.metrics import MetricWrapperBase

from kubelet.metrics import metrics as kubeletmetrics
from pkg.component_base.metrics import metrics

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/metrics.md"
_MAKES_METRICS = re.compile(
    r"metrics\.new_(counter|gauge|histogram)\(|MetricFamily\(|annotated_help\(|ProcessCollector|new_family"
)
# The library's own collector creates these names.
_LIBRARY = {
    f"process_{name}"
    for name in ("cpu_seconds_total", "max_fds", "open_fds", "resident_memory_bytes", "virtual_memory_bytes")
}


class Row(NamedTuple):
    name: str
    page: str
    type: str
    level: str
    labels: tuple[str, ...]
    # The upper bounds of a histogram's buckets are rounded to six digits.
    buckets: tuple[float, ...] = ()


def six_digits(bound: str | float) -> float:
    return float(f"{float(bound):.6g}")


def upstream() -> list[Row]:
    rows = []
    for line in Path(__file__).with_name("testdata").joinpath("upstream.tsv").read_text().splitlines():
        if not line.startswith("#"):
            name, page, kind, level, labels, buckets = (*line.split("\t"), "", "", "")[:6]
            bounds = tuple(map(six_digits, filter(None, buckets.split(","))))
            rows.append(Row(name, page, kind, level, tuple(filter(None, labels.split(","))), bounds))
    return rows


def names() -> set[str]:
    return {row.name for row in upstream()}


@cache
def sources() -> dict[Path, str]:
    """Return the modules that create metrics."""
    files = (file for package in ("kubelet", "pkg") for file in (ROOT / package).rglob("*.py"))
    texts = {file: file.read_text() for file in files if not file.name.endswith("_test.py")}
    return {file: text for file, text in texts.items() if _MAKES_METRICS.search(text)}


@cache
def ours() -> dict[str, Row]:
    """Return the metrics that modules create as objects; collectors create others at a scrape (see `collected`)."""
    for file in sources():
        importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    rows = {}
    for metric, stability in list(metrics._stability.items()):
        assert isinstance(metric, MetricWrapperBase)
        [family] = metric.describe()
        labels = tuple(sorted(metric._labelnames))
        rows[family.name] = Row(family.name, "", family.type, stability.level, labels, bounds(metric))
    return rows


def bounds(metric: MetricWrapperBase) -> tuple[float, ...]:
    """Return the bounds of a histogram's buckets except the infinite one, or nothing for other metrics."""
    if not isinstance(metric, prometheus_client.Histogram):
        return ()
    found = metric._kwargs["buckets"] if metric._labelnames else metric._upper_bounds
    return tuple(six_digits(each) for each in found if each != math.inf)


@cache
def collected() -> set[str]:
    """Return the names in the modules with collectors."""
    return set(re.findall(r'"([a-z][a-z0-9_]+)"', "\n".join(sources().values()))) | _LIBRARY


def table(heading: str) -> dict[str, str]:
    """Return the first and last column of the table below a heading. A name may stand for several with {a,b}."""
    section = DOCUMENT.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = {}
    for names, reason in re.findall(r"^\| (`.+?) \|.*?([^|]+) \|$", section, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            found[name] = reason
    assert found, f"{DOCUMENT.name} has no table below {heading!r}"
    return found


@pytest.mark.parametrize("row", upstream(), ids=lambda row: f"{row.name} of {row.page}")
def test_metric_of_upstream(row: Row) -> None:
    """A metric has the same type, stability, labels and buckets as upstream, or the document explains its absence."""
    absent = table("Missing metrics")
    here = ours().get(row.name)
    if row.name in absent:
        assert here is None, f"{DOCUMENT.name} says that it is not here"
    elif here is None:
        assert row.name in collected(), f"neither here nor in {DOCUMENT.name}"
    elif row.name not in _LIBRARY | {"process_start_time_seconds"}:
        assert here._replace(page=row.page) == row


def test_document_knows_upstream() -> None:
    assert table("Missing metrics").keys() <= names()


def test_metrics_that_nothing_moves_are_documented() -> None:
    constants = {value: name for name, value in vars(kubeletmetrics).items() if isinstance(value, MetricWrapperBase)}
    package = Path(kubeletmetrics.__file__).parent
    used = set[str]()
    for file in (file for folder in ("kubelet", "pkg", "cmd") for file in (ROOT / folder).rglob("*.py")):
        if file.parent != package and not file.name.endswith("_test.py"):
            used.update(re.findall(r"\b[A-Z][A-Z0-9_]+\b", file.read_text()))
    unmoved = {next(iter(metric.describe())).name for metric, name in constants.items() if name not in used}
    assert unmoved == table("Constant metrics").keys()


def test_metrics_of_this_kubelet_alone_are_documented() -> None:
    made = {name for name in ours() if not name.startswith("test_")}
    assert made - names() == table("Additional metrics").keys()
