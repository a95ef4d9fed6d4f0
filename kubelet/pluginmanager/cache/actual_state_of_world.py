"""The plugins that are registered.

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
    """A plugin, as far as it is known: one that is only wanted has no more than a socket, a time and a uuid."""

    socket_path: str
    timestamp: datetime.datetime | None = None
    # Tells this socket from another that was at the same path before.
    uuid: str = ""
    handler: PluginHandler | None = None
    name: str = ""
    endpoint: str = ""


class ActualStateOfWorld:
    """Filled by operations, when they have succeeded. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _socket_file_to_info
        self._socket_file_to_info: dict[str, PluginInfo] = {}

    def add_plugin(self, plugin_info: PluginInfo) -> None:
        """Raises ValueError for a plugin without socket."""
        if not plugin_info.socket_path:
            raise ValueError("socket path is empty")
        with self._lock:
            if plugin_info.socket_path in self._socket_file_to_info:
                klog.v(2).info_s("Plugin exists in actual state cache", path=plugin_info.socket_path)
            self._socket_file_to_info[plugin_info.socket_path] = plugin_info

    def remove_plugin(self, socket_path: str) -> None:
        """Does nothing if there is none."""
        with self._lock:
            self._socket_file_to_info.pop(socket_path, None)

    def get_registered_plugins(self) -> list[PluginInfo]:
        with self._lock:
            return list(self._socket_file_to_info.values())

    def plugin_exists_with_correct_uuid(self, plugin_info: PluginInfo) -> bool:
        """Whether the plugin is registered, and not one that was at its path before."""
        with self._lock:
            known = self._socket_file_to_info.get(plugin_info.socket_path)
            return known is not None and known.uuid == plugin_info.uuid
