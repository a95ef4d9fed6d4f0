"""Hold the pods of this node, and the mirror pods that represent static pods in the API server.

Go: pkg/kubelet/pod
"""

from kubelet.pod.mirror_client import (
    BasicMirrorClient,
    MirrorClient,
    NodeGetter,
    NodeUIDError,
    get_hash_from_mirror_pod,
    get_pod_hash,
)
from kubelet.pod.pod_manager import (
    BasicManager,
    Manager,
    PodAndMirrorPod,
    is_mirror_pod_of,
)

__all__ = [
    "BasicManager",
    "BasicMirrorClient",
    "Manager",
    "MirrorClient",
    "NodeGetter",
    "NodeUIDError",
    "PodAndMirrorPod",
    "get_hash_from_mirror_pod",
    "get_pod_hash",
    "is_mirror_pod_of",
]
