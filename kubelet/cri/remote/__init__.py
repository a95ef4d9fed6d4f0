"""Clients of a container runtime's socket, speaking CRI v1.

Go: pkg/kubelet/cri/remote (release-1.27), k8s.io/cri-client/pkg (today)
"""

from kubelet.cri.errors import RemoteCanceledError, RemoteError, is_not_found, status_code
from kubelet.cri.remote.remote_image import RemoteImageService
from kubelet.cri.remote.remote_runtime import (
    ContainerStatusNilError,
    RemoteRuntimeService,
)

__all__ = [
    "ContainerStatusNilError",
    "RemoteCanceledError",
    "RemoteError",
    "RemoteImageService",
    "RemoteRuntimeService",
    "is_not_found",
    "status_code",
]
