"""Show as a metric which feature gates are on.

Go: k8s.io/component-base/metrics/prometheus/feature
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

FEATURE_INFO = metrics.new_gauge(
    "kubernetes_feature_enabled", "1 if the feature is on, else 0.", ["name", "stage"], level=metrics.BETA
)
legacyregistry.must_register(FEATURE_INFO)


def record_feature_info(name: str, stage: str, enabled: bool) -> None:
    FEATURE_INFO.labels(name, stage).set(1 if enabled else 0)
