"""The kubelet's HTTP servers.

Go: pkg/kubelet/server
"""

from kubelet.server.server import HostInterface, ReadOnlyServer, sync_loop_health_check

__all__ = ["HostInterface", "ReadOnlyServer", "sync_loop_health_check"]
