"""Register device plugins, and hold the connections to them.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1
"""

from kubelet.cm.devicemanager.plugin.v1beta1.api import ClientHandler, RegistrationHandler
from kubelet.cm.devicemanager.plugin.v1beta1.client import DevicePlugin, PluginClient, call
from kubelet.cm.devicemanager.plugin.v1beta1.handler import RegistrationError
from kubelet.cm.devicemanager.plugin.v1beta1.server import Server

__all__ = [
    "ClientHandler",
    "DevicePlugin",
    "PluginClient",
    "RegistrationError",
    "RegistrationHandler",
    "Server",
    "call",
]
