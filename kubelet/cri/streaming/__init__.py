"""What the kubelet shares with the streaming server of a container runtime: options of requests, and errors.

The server itself is the runtime's; the kubelet passes connections on to it.

Go: k8s.io/cri-streaming/pkg/streaming, pkg/kubelet/cri/streaming in 1.27
"""

from kubelet.cri.streaming.errors import write_error

__all__ = ["write_error"]
