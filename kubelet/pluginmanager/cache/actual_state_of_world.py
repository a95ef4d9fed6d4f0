"""Hold the registered plugins.

Go: pkg/kubelet/pluginmanager/cache/actual_state_of_world.go
"""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass

from kubelet.pluginmanager.cache.types import PluginHandler
from pkg import klog


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """Describe a plugin; one that is not registered yet has only a socket, a time and a uuid."""

    socket_path: str
    timestamp: datetime.datetime | None = None
    # The uuid distinguishes this socket from an earlier one at the same path.
    uuid: str = ""
    handler: PluginHandler | None = None
    name: str = ""
    endpoint: str = ""


class ActualStateOfWorld:
    """Hold the plugins that operations have registered. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _socket_file_to_info.
        self._socket_file_to_info: dict[str, PluginInfo] = {}

    def add_plugin(self, plugin_info: PluginInfo) -> None:
        """Add a registered plugin. Raise ValueError if it has no socket."""
        if not plugin_info.socket_path:
            raise ValueError("socket path is empty")
        with self._lock:
            if plugin_info.socket_path in self._socket_file_to_info:
                klog.v(2).info_s("Plugin exists in actual state cache", path=plugin_info.socket_path)
            self._socket_file_to_info[plugin_info.socket_path] = plugin_info

    def remove_plugin(self, socket_path: str) -> None:
        """Remove a plugin if it is present."""
        with self._lock:
            self._socket_file_to_info.pop(socket_path, None)

    def get_registered_plugins(self) -> list[PluginInfo]:
        with self._lock:
            return list(self._socket_file_to_info.values())

    def plugin_exists_with_correct_uuid(self, plugin_info: PluginInfo) -> bool:
        """Report whether this plugin is registered, and not an earlier one at its path."""
        with self._lock:
            known = self._socket_file_to_info.get(plugin_info.socket_path)
            return known is not None and known.uuid == plugin_info.uuid
