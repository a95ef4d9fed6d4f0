"""Families of metrics with exactly the name they are given."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric

COUNTER = "counter"
GAUGE = "gauge"


def family(name: str, help: str, type: str) -> Metric:
    """A family without samples."""
    made = Metric(name, help, "unknown")
    made.type = type  # Set afterwards: the constructor cuts _total off a counter's name.
    return made
