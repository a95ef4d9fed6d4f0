"""Define metrics of the server's requests and of the source of container statistics.

Go: pkg/kubelet/server/metrics/metrics.go
"""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

# The label server_type distinguishes the read-only server from the main one. long_running is "true" for exec, attach,
# port-forward and debug.
_LABELS = ("method", "path", "server_type", "long_running")


class MetricsProviderType(enum.StrEnum):
    """Represent the source of container statistics."""

    CADVISOR = "cadvisor"
    CRI = "cri"


HTTP_REQUESTS = metrics.new_counter(
    "kubelet_http_requests_total", "HTTP requests that the server has received since it started.", _LABELS
)
HTTP_REQUESTS_DURATION = metrics.new_histogram(
    "kubelet_http_requests_duration_seconds", "Seconds that serving a request took.", _LABELS
)
HTTP_INFLIGHT_REQUESTS = metrics.new_gauge("kubelet_http_inflight_requests", "Requests that are being served.", _LABELS)
VOLUME_STAT_CAL_DURATION = metrics.new_histogram(
    "kubelet_volume_metric_collection_duration_seconds",
    "Seconds to measure a volume, by how it is measured.",
    ["metric_source"],
)
METRICS_PROVIDER = metrics.new_gauge(
    "kubelet_metrics_provider", "Always 1, labelled with the source of container statistics.", ["provider"]
)
WEB_SOCKET_STREAMING_REQUESTS = metrics.new_counter(
    "kubelet_websocket_streaming_requests_total",
    "Requests over WebSocket for exec, attach and port-forward.",
    ["subresource"],
)

# This function registers the metrics. Later calls do nothing.
register = legacyregistry.Once(
    HTTP_REQUESTS,
    HTTP_REQUESTS_DURATION,
    HTTP_INFLIGHT_REQUESTS,
    VOLUME_STAT_CAL_DURATION,
    METRICS_PROVIDER,
    WEB_SOCKET_STREAMING_REQUESTS,
)


def collect_volume_stat_cal_duration(metric_source: str) -> AbstractContextManager[object]:
    """Record how long the `with` block takes to measure a volume, whether it succeeds or fails."""
    return VOLUME_STAT_CAL_DURATION.labels(metric_source).time()


def set_metrics_provider(provider: MetricsProviderType) -> None:
    """Set the source of container statistics that the metric shows."""
    METRICS_PROVIDER.clear()
    METRICS_PROVIDER.labels(provider).set(1)


def inc_web_socket_streaming_request(subresource: str) -> None:
    """Count one request over WebSocket. The subresource is exec, attach or portforward."""
    WEB_SOCKET_STREAMING_REQUESTS.labels(subresource).inc()
