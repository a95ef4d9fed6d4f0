"""Running a command in a container, or attaching to one, with its streams over the network.

Go: k8s.io/cri-streaming/pkg/streaming/remotecommand
"""

from kubelet.cri.streaming.remotecommand.httpstream import Options, new_options

__all__ = ["Options", "new_options"]
