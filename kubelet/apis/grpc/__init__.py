"""Provide what the kubelet's gRPC services share.

Go: pkg/kubelet/apis/grpc
"""

from kubelet.apis.grpc.pool import MAX_THREADS, new_thread_pool, start
from kubelet.apis.grpc.ratelimit import LimiterUnaryServerInterceptor, with_rate_limiter
from kubelet.apis.grpc.requests import RequestTimeouts

__all__ = [
    "MAX_THREADS",
    "LimiterUnaryServerInterceptor",
    "RequestTimeouts",
    "new_thread_pool",
    "start",
    "with_rate_limiter",
]
