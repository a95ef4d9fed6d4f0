"""Define the metrics of the kubelet's server.

Go: pkg/kubelet/server/metrics
"""

from kubelet.server.metrics.metrics import (
    HTTP_INFLIGHT_REQUESTS,
    HTTP_REQUESTS,
    HTTP_REQUESTS_DURATION,
    METRICS_PROVIDER,
    VOLUME_STAT_CAL_DURATION,
    WEB_SOCKET_STREAMING_REQUESTS,
    MetricsProviderType,
    collect_volume_stat_cal_duration,
    inc_web_socket_streaming_request,
    register,
    set_metrics_provider,
)

__all__ = [
    "HTTP_INFLIGHT_REQUESTS",
    "HTTP_REQUESTS",
    "HTTP_REQUESTS_DURATION",
    "METRICS_PROVIDER",
    "VOLUME_STAT_CAL_DURATION",
    "WEB_SOCKET_STREAMING_REQUESTS",
    "MetricsProviderType",
    "collect_volume_stat_cal_duration",
    "inc_web_socket_streaming_request",
    "register",
    "set_metrics_provider",
]
