"""Define what the registration server and its clients need from the device manager.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/api.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi

if TYPE_CHECKING:
    from kubelet.cm.devicemanager.plugin.v1beta1.client import DevicePlugin


class RegistrationHandler(Protocol):
    def cleanup_plugin_directory(self, directory: str) -> None:
        """Remove the sockets that are left in the directory. Raise OSError."""
        ...


class ClientHandler(Protocol):
    """Define the callbacks of plugin clients. They run on the threads of registrations and of clients."""

    def plugin_connected(self, resource_name: str, plugin: DevicePlugin) -> None:
        """Add a plugin, which can be called from now on. Raise an error to reject it."""
        ...

    def plugin_disconnected(self, resource_name: str, plugin: DevicePlugin) -> None:
        """Remove this plugin of the resource. Another plugin may have connected since."""
        ...

    def plugin_list_and_watch_receiver(self, resource_name: str, response: pluginapi.ListAndWatchResponse) -> None:
        """Store the complete list of the resource's devices."""
        ...
