"""Report, over a socket, the devices, CPUs and memory of containers to agents on the node.

Go: pkg/kubelet/apis/podresources
"""

from kubelet.apis.podresources.client import get_v1_client, get_v1alpha1_client
from kubelet.apis.podresources.constants import DEFAULT_BURST_TOKENS, DEFAULT_QPS, SOCKET
from kubelet.apis.podresources.server_v1 import V1PodResourcesServer
from kubelet.apis.podresources.server_v1alpha1 import V1alpha1PodResourcesServer
from kubelet.apis.podresources.types import (
    CPUsProvider,
    DevicesProvider,
    DynamicResourcesProvider,
    MemoryProvider,
    NothingAssigned,
    PodResourcesProviders,
    PodsProvider,
)

__all__ = [
    "DEFAULT_BURST_TOKENS",
    "DEFAULT_QPS",
    "SOCKET",
    "CPUsProvider",
    "DevicesProvider",
    "DynamicResourcesProvider",
    "MemoryProvider",
    "NothingAssigned",
    "PodResourcesProviders",
    "PodsProvider",
    "V1PodResourcesServer",
    "V1alpha1PodResourcesServer",
    "get_v1_client",
    "get_v1alpha1_client",
]
