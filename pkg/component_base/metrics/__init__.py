"""Metrics over the prometheus client library, and (legacyregistry) the registry that /metrics shows.

Go: staging/src/k8s.io/component-base/metrics
"""

from pkg.component_base.metrics.metrics import (
    CONTENT_TYPE,
    DEF_BUCKETS,
    Counter,
    exponential_buckets,
    exponential_buckets_range,
    expose,
    new_counter,
    new_gauge,
    new_histogram,
)

__all__ = [
    "CONTENT_TYPE",
    "DEF_BUCKETS",
    "Counter",
    "exponential_buckets",
    "exponential_buckets_range",
    "expose",
    "new_counter",
    "new_gauge",
    "new_histogram",
]
