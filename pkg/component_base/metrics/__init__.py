"""Define metrics on top of the Prometheus client library; legacyregistry has the registry that /metrics shows.

Go: k8s.io/component-base/metrics
"""

from pkg.component_base.metrics.metrics import (
    CONTENT_TYPE,
    COUNTER,
    DEF_BUCKETS,
    GAUGE,
    Counter,
    StabilityLevel,
    annotated_help,
    exponential_buckets,
    exponential_buckets_range,
    expose,
    new_counter,
    new_family,
    new_gauge,
    new_histogram,
)
from pkg.component_base.metrics.options import set_show_hidden
from pkg.component_base.metrics.processstarttime import register_process_start_time
from pkg.component_base.metrics.registry import KubeRegistry, register_meta_metrics
from pkg.component_base.metrics.version import register_build_info

ALPHA = StabilityLevel.ALPHA
BETA = StabilityLevel.BETA
INTERNAL = StabilityLevel.INTERNAL
STABLE = StabilityLevel.STABLE

__all__ = [
    "ALPHA",
    "BETA",
    "CONTENT_TYPE",
    "COUNTER",
    "DEF_BUCKETS",
    "GAUGE",
    "INTERNAL",
    "STABLE",
    "Counter",
    "KubeRegistry",
    "StabilityLevel",
    "annotated_help",
    "exponential_buckets",
    "exponential_buckets_range",
    "expose",
    "new_counter",
    "new_family",
    "new_gauge",
    "new_histogram",
    "register_build_info",
    "register_meta_metrics",
    "register_process_start_time",
    "set_show_hidden",
]
