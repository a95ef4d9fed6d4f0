"""Read metrics in tests.

Go: k8s.io/component-base/metrics/testutil
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.metrics import MetricWrapperBase

_PARTS = ("_bucket", "_sum", "_created")


def value(metric: MetricWrapperBase, **labels: str) -> float:
    """Return the sum of all values with these labels.

    For a histogram, the value is the number of observations.
    """
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if not sample.name.endswith(_PARTS) and labels.items() <= sample.labels.items()
    )


@contextmanager
def moves(metric: MetricWrapperBase, by: float = 1, **labels: str) -> Iterator[None]:
    """Check that the block changes the value by this amount."""
    before = value(metric, **labels)
    yield
    assert value(metric, **labels) - before == by
