"""Messages and services of device plugins, and the words in them.

Go: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1
"""

from kubelet.apis.deviceplugin.v1beta1.constants import (
    DEVICE_PLUGIN_PATH,
    HEALTHY,
    KUBELET_PRE_START_CONTAINER_RPC_TIMEOUT,
    KUBELET_SOCKET,
    KUBELET_SOCKET_NAME,
    SUPPORTED_VERSIONS,
    UNHEALTHY,
    VERSION,
)

__all__ = [
    "DEVICE_PLUGIN_PATH",
    "HEALTHY",
    "KUBELET_PRE_START_CONTAINER_RPC_TIMEOUT",
    "KUBELET_SOCKET",
    "KUBELET_SOCKET_NAME",
    "SUPPORTED_VERSIONS",
    "UNHEALTHY",
    "VERSION",
]
