"""Slowing down: per-item back-off and rate limits.

Go: k8s.io/client-go/util/flowcontrol
"""

from pkg.client_go.util.flowcontrol.backoff import Backoff
from pkg.client_go.util.flowcontrol.throttle import RateLimiter, TokenBucketRateLimiter

__all__ = ["Backoff", "RateLimiter", "TokenBucketRateLimiter"]
