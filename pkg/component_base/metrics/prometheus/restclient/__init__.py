"""Metrics of the client of the API server; `register` shows them on /metrics.

Go: k8s.io/component-base/metrics/prometheus/restclient/metrics.go
"""

from __future__ import annotations

import datetime
import math
from functools import cache

from pkg.client_go.tools import metrics as clientmetrics
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# 64 bytes to 16 MiB
_SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

REQUESTS_TOTAL = metrics.new_counter(
    "rest_client_requests_total", "Tries of requests, by status code, method and host.", ("code", "method", "host")
)
REQUEST_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_request_duration_seconds",
    "Seconds of a request with all its tries, by verb and host.",
    ("verb", "host"),
    _BUCKETS,
)
REQUEST_RETRIES_TOTAL = metrics.new_counter(
    "rest_client_request_retries_total",
    "Tries of requests after the first, by status code, verb and host.",
    ("code", "verb", "host"),
)
REQUEST_SIZE_BYTES = metrics.new_histogram(
    "rest_client_request_size_bytes", "Bytes of requests, by verb and host.", ("verb", "host"), _SIZE_BUCKETS
)
RESPONSE_SIZE_BYTES = metrics.new_histogram(
    "rest_client_response_size_bytes", "Bytes of responses, by verb and host.", ("verb", "host"), _SIZE_BUCKETS
)
RATE_LIMITER_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Seconds that the client's own limit held requests back, by verb and host.",
    ("verb", "host"),
    _BUCKETS,
)
DNS_RESOLUTION_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_dns_resolution_duration_seconds",
    "Seconds to find out the addresses of the API server, by host.",
    ("host",),
    _BUCKETS[:-1],
)
EXEC_PLUGIN_TTL_SECONDS = metrics.new_gauge(
    "rest_client_exec_plugin_ttl_seconds",
    "Seconds until the first certificate of a credential plugin expires, negative once it has; +Inf without any.",
)
EXEC_PLUGIN_TTL_SECONDS.set(math.inf)
EXEC_PLUGIN_CERTIFICATE_ROTATION_AGE = metrics.new_histogram(
    "rest_client_exec_plugin_certificate_rotation_age",
    "Seconds that certificates of credential plugins had lived when others took their places.",
    # From 10 minutes to 4 years.
    buckets=(600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000),
)
EXEC_PLUGIN_CALL_TOTAL = metrics.new_counter(
    "rest_client_exec_plugin_call_total",
    "Runs of a credential plugin, by its exit code and by how it went.",
    ("code", "call_status"),
)


class _Observer(clientmetrics.Observer):
    def request_result(self, code: str, method: str, host: str) -> None:
        REQUESTS_TOTAL.labels(code, method, host).inc()

    def request_latency(self, verb: str, host: str, seconds: float) -> None:
        REQUEST_DURATION_SECONDS.labels(verb, host).observe(seconds)

    def request_retry(self, code: str, verb: str, host: str) -> None:
        REQUEST_RETRIES_TOTAL.labels(code, verb, host).inc()

    def request_size(self, verb: str, host: str, size: int) -> None:
        REQUEST_SIZE_BYTES.labels(verb, host).observe(size)

    def response_size(self, verb: str, host: str, size: int) -> None:
        RESPONSE_SIZE_BYTES.labels(verb, host).observe(size)

    def rate_limiter_latency(self, verb: str, host: str, seconds: float) -> None:
        RATE_LIMITER_DURATION_SECONDS.labels(verb, host).observe(seconds)

    def resolver_latency(self, host: str, seconds: float) -> None:
        DNS_RESOLUTION_DURATION_SECONDS.labels(host).observe(seconds)

    def client_cert_expiry(self, expiry: datetime.datetime | None) -> None:
        def ttl() -> float:
            return math.inf if expiry is None else (expiry - datetime.datetime.now(datetime.UTC)).total_seconds()

        EXEC_PLUGIN_TTL_SECONDS.set_function(ttl)

    def client_cert_rotation_age(self, seconds: float) -> None:
        EXEC_PLUGIN_CERTIFICATE_ROTATION_AGE.observe(seconds)

    def exec_plugin_call(self, code: int, call_status: str) -> None:
        EXEC_PLUGIN_CALL_TOTAL.labels(code, call_status).inc()


@cache
def register() -> None:
    """Count the requests of all clients from now on."""
    legacyregistry.must_register(
        REQUESTS_TOTAL,
        REQUEST_DURATION_SECONDS,
        REQUEST_RETRIES_TOTAL,
        REQUEST_SIZE_BYTES,
        RESPONSE_SIZE_BYTES,
        RATE_LIMITER_DURATION_SECONDS,
        DNS_RESOLUTION_DURATION_SECONDS,
        EXEC_PLUGIN_CALL_TOTAL,
        EXEC_PLUGIN_TTL_SECONDS,
        EXEC_PLUGIN_CERTIFICATE_ROTATION_AGE,
    )
    clientmetrics.register(_Observer())
