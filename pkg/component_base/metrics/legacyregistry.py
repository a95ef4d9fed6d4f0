"""Hold the registry of the whole process, which /metrics shows.

Go: k8s.io/component-base/metrics/legacyregistry
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from pkg.component_base.metrics import http, process_collector, version
from pkg.component_base.metrics.registry import KubeRegistry, register_meta_metrics

if TYPE_CHECKING:
    from pkg.golang.http import Handler

_default = KubeRegistry()
DEFAULT_GATHERER = _default.registry
_default.must_register(process_collector.ProcessCollector())
register_meta_metrics(_default)
version.register_build_info(_default)


def must_register(*collectors: Collector) -> None:
    """Add metrics; raise ValueError if the registry already has their names."""
    _default.must_register(*collectors)


class Once:
    """Add metrics at the first call, and do nothing at further calls.

    All methods are thread-safe.
    """

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors
        self._lock = threading.Lock()  # The lock guards _done.
        self._done = False

    def __call__(self) -> None:
        with self._lock:
            if not self._done:
                must_register(*self._collectors)
                self._done = True


def unregister(*collectors: Collector) -> None:
    """Remove metrics; raise KeyError if the registry does not have them."""
    _default.unregister(*collectors)


def expose() -> bytes:
    """Return all metrics in the Prometheus text format; the content type is `metrics.CONTENT_TYPE`."""
    return _default.expose()


def handler() -> Handler:
    """Return the handler for the page of all metrics."""
    return http.handler_for(_default)
