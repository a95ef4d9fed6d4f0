"""Define the messages, services and constants of the device plugin API.

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
