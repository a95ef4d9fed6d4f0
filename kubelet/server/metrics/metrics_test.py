"""Test the metrics of the server.

Go: pkg/kubelet/server/metrics/metrics_test.go
"""

from __future__ import annotations

import pytest

from kubelet.server import metrics
from pkg.component_base.metrics import legacyregistry
from pkg.component_base.metrics import testing as metricstesting


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_websocket_requests_are_counted(subresource: str) -> None:
    with metricstesting.moves(metrics.WEB_SOCKET_STREAMING_REQUESTS, subresource=subresource):
        metrics.inc_web_socket_streaming_request(subresource)


def test_one_provider_at_a_time() -> None:
    metrics.register()
    metrics.register()
    for provider in metrics.MetricsProviderType:
        metrics.set_metrics_provider(provider)
        shown = [line for line in legacyregistry.expose().decode().splitlines() if line.startswith("kubelet_metrics_p")]
        assert shown == [f'kubelet_metrics_provider{{provider="{provider}"}} 1']


def test_measuring_volumes_is_timed() -> None:
    with (
        metricstesting.moves(metrics.VOLUME_STAT_CAL_DURATION, metric_source="du"),
        metrics.collect_volume_stat_cal_duration("du"),
    ):
        pass
