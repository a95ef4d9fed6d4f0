"""Parse requests to run a command in a container or to attach to it.

Go: k8s.io/cri-streaming/pkg/streaming/remotecommand
"""

from kubelet.cri.streaming.remotecommand.httpstream import Options, new_options

__all__ = ["Options", "new_options"]
