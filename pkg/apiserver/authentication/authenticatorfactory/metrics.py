"""Define the metrics of token reviews by the API server.

Go: k8s.io/apiserver/pkg/authentication/authenticatorfactory/metrics.go
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

REQUEST_TOTAL = metrics.new_counter(
    "apiserver_delegated_authn_request_total",
    "Number of HTTP requests partitioned by status code.",
    ("code",),
)
REQUEST_LATENCY = metrics.new_histogram(
    "apiserver_delegated_authn_request_duration_seconds",
    "Request latency in seconds. Broken down by status code.",
    ("code",),
    (0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10),
)

register_metrics = legacyregistry.Once(REQUEST_TOTAL, REQUEST_LATENCY)


def record_request(code: str, seconds: float) -> None:
    REQUEST_TOTAL.labels(code).inc()
    REQUEST_LATENCY.labels(code).observe(seconds)
