"""Metrics of the client of the API server; `register` shows them on /metrics.

Go: staging/src/k8s.io/component-base/metrics/prometheus/restclient/metrics.go
"""

from __future__ import annotations

from functools import cache

from pkg.client_go.tools import metrics as clientmetrics
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

REQUESTS_TOTAL = metrics.new_counter(
    "rest_client_requests_total",
    "Tries of requests, by status code, method and host.",
    ("code", "method", "host"),
)
REQUEST_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_request_duration_seconds",
    "Seconds of a request with all its tries, by verb and host.",
    ("verb", "host"),
    _BUCKETS,
)


@cache
def register() -> None:
    """Count the requests of all clients from now on."""
    legacyregistry.must_register(REQUESTS_TOTAL, REQUEST_DURATION_SECONDS)
    clientmetrics.register(_count, _observe)


def _count(code: str, method: str, host: str) -> None:
    REQUESTS_TOTAL.labels(code, method, host).inc()


def _observe(verb: str, host: str, seconds: float) -> None:
    REQUEST_DURATION_SECONDS.labels(verb, host).observe(seconds)
