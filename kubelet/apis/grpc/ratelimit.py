"""Limit the rate of requests, so that clients cannot slow down the kubelet.

Go: pkg/kubelet/apis/grpc/ratelimit.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import grpc

from pkg import klog
from pkg.client_go.util import flowcontrol


class Limiter(Protocol):
    def try_accept(self) -> bool:
        """Report whether one more request may be served now."""


class LimiterUnaryServerInterceptor(grpc.ServerInterceptor):
    """Reject requests beyond the limit immediately with RESOURCE_EXHAUSTED."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._refusal: Any = grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        return continuation(handler_call_details) if self._limiter.try_accept() else self._refusal


def with_rate_limiter(service_name: str, qps: int, burst_tokens: int) -> LimiterUnaryServerInterceptor:
    """Return an interceptor for a server that serves `qps` requests a second on average, and `burst_tokens` at once."""
    klog.info_s("Setting rate limiting for endpoint", service=service_name, qps=qps, burstTokens=burst_tokens)
    return LimiterUnaryServerInterceptor(flowcontrol.TokenBucketRateLimiter(qps, burst_tokens))


def _refuse(request: Any, context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
