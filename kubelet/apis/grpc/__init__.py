"""What the kubelet's gRPC services share.

Go: pkg/kubelet/apis/grpc
"""

from kubelet.apis.grpc.pool import new_thread_pool, start
from kubelet.apis.grpc.ratelimit import LimiterUnaryServerInterceptor, with_rate_limiter

__all__ = ["LimiterUnaryServerInterceptor", "new_thread_pool", "start", "with_rate_limiter"]
