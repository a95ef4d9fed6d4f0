"""Parse requests for port forwarding.

Go: k8s.io/cri-streaming/pkg/streaming/portforward
"""

from kubelet.cri.streaming.portforward.websocket import V4Options, new_v4_options

__all__ = ["V4Options", "new_v4_options"]
