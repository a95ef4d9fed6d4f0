"""Define the messages and the service of plugin registration, and the types of plugins.

Go: k8s.io/kubelet/pkg/apis/pluginregistration/v1
"""

from kubelet.apis.pluginregistration.v1.constants import CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN

__all__ = ["CSI_PLUGIN", "DEVICE_PLUGIN", "DRA_PLUGIN"]
