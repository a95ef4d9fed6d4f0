"""Collect the results of health checks, and show them on the page /metrics/slis.

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
    "kubernetes_healthcheck",
    "1 if the last run of the check succeeded, else 0.",
    ["name", "type"],
    level=metrics.STABLE,
)
HEALTHCHECKS_TOTAL = metrics.new_counter(
    "kubernetes_healthchecks_total", "Runs of the check, by result.", ["name", "type", "status"], level=metrics.STABLE
)


@cache
def register() -> None:
    """Add the metrics to the page; further calls do nothing."""
    REGISTRY.must_register(HEALTHCHECK, HEALTHCHECKS_TOTAL)
    metrics.register_process_start_time(REGISTRY)


def handler_with_reset() -> Handler:
    """Return a handler for the page; a DELETE resets the results."""
    register()
    return http.handler_with_reset(REGISTRY)


def observe_healthcheck(name: str, healthcheck_type: str, status: Literal["success", "error"]) -> None:
    """Count one run of a check, requested at the path of this type, such as healthz."""
    HEALTHCHECK.labels(name, healthcheck_type).set(1 if status == SUCCESS else 0)
    HEALTHCHECKS_TOTAL.labels(name, healthcheck_type, status).inc()
