"""Provide the kubelet's HTTP servers.

Go: pkg/kubelet/server
"""

from kubelet.server.server import (
    HostInterface,
    InstallPages,
    Server,
    listen_debug_server,
    listen_kubelet_read_only_server,
    listen_kubelet_server,
    sync_loop_health_check,
)
from kubelet.server.tls import NoServingCertificateError, TLSConfig, TLSOptions, new_tls_options

__all__ = [
    "HostInterface",
    "InstallPages",
    "NoServingCertificateError",
    "Server",
    "TLSConfig",
    "TLSOptions",
    "listen_debug_server",
    "listen_kubelet_read_only_server",
    "listen_kubelet_server",
    "new_tls_options",
    "sync_loop_health_check",
]
