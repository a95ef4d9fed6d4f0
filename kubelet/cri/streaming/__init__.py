"""What the kubelet shares with the streaming server of a container runtime: options of requests, and errors.

The server itself is the runtime's; the kubelet passes connections on to it.

Go: pkg/kubelet/cri/streaming (release-1.27), k8s.io/cri-streaming/pkg/streaming (today)
"""

from kubelet.cri.streaming.errors import write_error

__all__ = ["write_error"]
