"""Define the metrics of the token cache.

Go: k8s.io/apiserver/pkg/authentication/token/cache/stats.go
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

REQUEST_LATENCY = metrics.new_histogram("authentication_token_cache_request_duration_seconds", "", ("status",))
REQUEST_COUNT = metrics.new_counter("authentication_token_cache_request_total", "", ("status",))
FETCH_COUNT = metrics.new_counter("authentication_token_cache_fetch_total", "", ("status",))
ACTIVE_FETCH_COUNT = metrics.new_gauge("authentication_token_cache_active_fetch_count", "", ("status",))

HIT, MISS = "hit", "miss"
FETCH_FAILED, FETCH_OK = "error", "ok"
FETCH_IN_FLIGHT, FETCH_BLOCKED = "in_flight", "blocked"

register = legacyregistry.Once(REQUEST_LATENCY, REQUEST_COUNT, FETCH_COUNT, ACTIVE_FETCH_COUNT)
