"""Words and places of the API.

Go: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/constants.go
"""

from __future__ import annotations

# How a device is.
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

VERSION = "v1beta1"
SUPPORTED_VERSIONS = (VERSION,)

# Where plugins put their sockets, and find the kubelet's, whatever the kubelet's root directory.
DEVICE_PLUGIN_PATH = "/var/lib/kubelet/device-plugins/"
KUBELET_SOCKET_NAME = "kubelet.sock"
KUBELET_SOCKET = DEVICE_PLUGIN_PATH + KUBELET_SOCKET_NAME

# Seconds that a plugin may take for PreStartContainer.
KUBELET_PRE_START_CONTAINER_RPC_TIMEOUT = 30.0
