"""How health checks went, and the page /metrics/slis that shows it.

Go: k8s.io/component-base/metrics/prometheus/slis
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

from pkg.component_base import metrics
from pkg.component_base.metrics import http

if TYPE_CHECKING:
    from pkg.golang.http import Handler

SUCCESS: Literal["success"] = "success"
ERROR: Literal["error"] = "error"

REGISTRY = metrics.KubeRegistry()

HEALTHCHECK = metrics.new_gauge(
    "kubernetes_healthcheck", "1 if the check succeeded the last time, else 0.", ["name", "type"], level=metrics.STABLE
)
HEALTHCHECKS_TOTAL = metrics.new_counter(
    "kubernetes_healthchecks_total", "Runs of a check by result.", ["name", "type", "status"], level=metrics.STABLE
)


@cache
def register() -> None:
    """Put the metrics on the page. Later calls do nothing."""
    REGISTRY.must_register(HEALTHCHECK, HEALTHCHECKS_TOTAL)
    metrics.register_process_start_time(REGISTRY)


def handler_with_reset() -> Handler:
    """Serves the page; a DELETE forgets the results."""
    register()
    return http.handler_with_reset(REGISTRY)


def observe_healthcheck(name: str, healthcheck_type: str, status: Literal["success", "error"]) -> None:
    """Count one run of a check that was asked for at the path of that type, such as healthz."""
    HEALTHCHECK.labels(name, healthcheck_type).set(1 if status == SUCCESS else 0)
    HEALTHCHECKS_TOTAL.labels(name, healthcheck_type, status).inc()
