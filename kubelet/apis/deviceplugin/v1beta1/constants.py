"""Define the constants and paths of the device plugin API.

Go: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/constants.go
"""

from __future__ import annotations

# A device has one of these health values.
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

VERSION = "v1beta1"
SUPPORTED_VERSIONS = (VERSION,)

# This directory has the plugins' and the kubelet's sockets. It does not depend on the kubelet's root directory.
DEVICE_PLUGIN_PATH = "/var/lib/kubelet/device-plugins/"
KUBELET_SOCKET_NAME = "kubelet.sock"
KUBELET_SOCKET = DEVICE_PLUGIN_PATH + KUBELET_SOCKET_NAME

# PreStartContainer has this timeout, in seconds.
KUBELET_PRE_START_CONTAINER_RPC_TIMEOUT = 30.0
