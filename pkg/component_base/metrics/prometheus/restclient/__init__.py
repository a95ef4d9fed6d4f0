"""Collect the metrics of API clients; `register` shows them on /metrics.

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
# The buckets range from 64 bytes to 16 MiB.
_SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

REQUESTS_TOTAL = metrics.new_counter(
    "rest_client_requests_total", "Request attempts, by status code, method and host.", ("code", "method", "host")
)
REQUEST_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_request_duration_seconds",
    "Duration of requests with all their attempts in seconds, by verb and host.",
    ("verb", "host"),
    _BUCKETS,
)
REQUEST_RETRIES_TOTAL = metrics.new_counter(
    "rest_client_request_retries_total",
    "Request attempts after the first, by status code, verb and host.",
    ("code", "verb", "host"),
)
REQUEST_SIZE_BYTES = metrics.new_histogram(
    "rest_client_request_size_bytes",
    "Size of request bodies in bytes, by verb and host.",
    ("verb", "host"),
    _SIZE_BUCKETS,
)
RESPONSE_SIZE_BYTES = metrics.new_histogram(
    "rest_client_response_size_bytes",
    "Size of response bodies in bytes, by verb and host.",
    ("verb", "host"),
    _SIZE_BUCKETS,
)
RATE_LIMITER_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Delay of requests by the client's rate limiter in seconds, by verb and host.",
    ("verb", "host"),
    _BUCKETS,
)
DNS_RESOLUTION_DURATION_SECONDS = metrics.new_histogram(
    "rest_client_dns_resolution_duration_seconds",
    "Duration of DNS look-ups of the API server in seconds, by host.",
    ("host",),
    _BUCKETS[:-1],
)
EXEC_PLUGIN_TTL_SECONDS = metrics.new_gauge(
    "rest_client_exec_plugin_ttl_seconds",
    "Seconds until the first certificate of a credential plugin expires; negative after that, +Inf without one.",
)
EXEC_PLUGIN_TTL_SECONDS.set(math.inf)
EXEC_PLUGIN_CERTIFICATE_ROTATION_AGE = metrics.new_histogram(
    "rest_client_exec_plugin_certificate_rotation_age",
    "Age of credential plugins' certificates in seconds when they were replaced.",
    # The buckets range from 10 minutes to 4 years.
    buckets=(600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000),
)
EXEC_PLUGIN_CALL_TOTAL = metrics.new_counter(
    "rest_client_exec_plugin_call_total",
    "Runs of credential plugins, by exit code and call status.",
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
