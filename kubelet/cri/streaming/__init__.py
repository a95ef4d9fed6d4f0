"""Define what the kubelet shares with a runtime's streaming server: the options of requests, and the errors.

The streaming server belongs to the runtime; the kubelet passes connections on to it.

Go: k8s.io/cri-streaming/pkg/streaming, pkg/kubelet/cri/streaming in 1.27
"""

from kubelet.cri.streaming.errors import write_error

__all__ = ["write_error"]
