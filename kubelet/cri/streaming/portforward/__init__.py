"""Forwarding ports into pods.

Go: pkg/kubelet/cri/streaming/portforward
"""

from kubelet.cri.streaming.portforward.websocket import V4Options, new_v4_options

__all__ = ["V4Options", "new_v4_options"]
