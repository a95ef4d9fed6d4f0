"""Limit rates, and back off after failures of an item.

Go: k8s.io/client-go/util/flowcontrol
"""

from pkg.client_go.util.flowcontrol.backoff import Backoff
from pkg.client_go.util.flowcontrol.throttle import RateLimiter, TokenBucketRateLimiter

__all__ = ["Backoff", "RateLimiter", "TokenBucketRateLimiter"]
