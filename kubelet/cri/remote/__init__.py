"""Call a container runtime over its socket with CRI v1.

Go: k8s.io/cri-client/pkg, pkg/kubelet/cri/remote in 1.27
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
