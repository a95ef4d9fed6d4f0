"""What the server and its clients need of the device manager.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/api.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi

if TYPE_CHECKING:
    from kubelet.cm.devicemanager.plugin.v1beta1.client import DevicePlugin


class RegistrationHandler(Protocol):
    def cleanup_plugin_directory(self, directory: str) -> None:
        """Remove the sockets that are left there. Raises OSError."""
        ...


class ClientHandler(Protocol):
    """Its methods are called on threads of registrations and of clients."""

    def plugin_connected(self, resource_name: str, plugin: DevicePlugin) -> None:
        """A plugin can be asked from now on. Raises what makes it unfit."""
        ...

    def plugin_disconnected(self, resource_name: str, plugin: DevicePlugin) -> None:
        """This plugin of the resource is gone; another may have connected since."""
        ...

    def plugin_list_and_watch_receiver(self, resource_name: str, response: pluginapi.ListAndWatchResponse) -> None:
        """These are all devices that the resource has now."""
        ...
