"""The registry of the whole process, which /metrics shows.

Go: staging/src/k8s.io/component-base/metrics/legacyregistry
"""

from __future__ import annotations

import threading

import prometheus_client
from prometheus_client.registry import Collector

from pkg.component_base.metrics import metrics

DEFAULT_GATHERER = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=DEFAULT_GATHERER)


def must_register(*collectors: Collector) -> None:
    """Add metrics; raises ValueError if the registry has their names already."""
    for collector in collectors:
        DEFAULT_GATHERER.register(collector)


class Once:
    """Adds metrics when it is first called, and does nothing after that. Thread-safe."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors
        self._lock = threading.Lock()  # guards _done
        self._done = False

    def __call__(self) -> None:
        with self._lock:
            if not self._done:
                must_register(*self._collectors)
                self._done = True


def unregister(*collectors: Collector) -> None:
    """Take metrics out again; raises KeyError if they are not in."""
    for collector in collectors:
        DEFAULT_GATHERER.unregister(collector)


def expose() -> bytes:
    """All metrics in the Prometheus text format; the content type is `metrics.CONTENT_TYPE`."""
    return metrics.expose(DEFAULT_GATHERER)
