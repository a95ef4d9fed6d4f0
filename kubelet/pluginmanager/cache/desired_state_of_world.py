"""Hold the plugins that have a socket, and so must be registered.

Go: pkg/kubelet/pluginmanager/cache/desired_state_of_world.go
"""

from __future__ import annotations

import threading
import uuid

from kubelet.pluginmanager.cache.actual_state_of_world import PluginInfo
from pkg import golang, klog
from pkg.apimachinery import clock as clock_


class DesiredStateOfWorld:
    """Hold the plugins that the watcher has found. All methods are thread-safe."""

    def __init__(self, clock: clock_.Clock | None = None) -> None:
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # The lock guards _socket_file_to_info.
        self._socket_file_to_info: dict[str, PluginInfo] = {}
        self._changed: golang.Channel[None] = golang.Channel(1)

    def changed(self) -> golang.Channel[None]:
        """Return a channel that has an item if plugins were added or removed since the last receive."""
        return self._changed

    def add_or_update_plugin(self, socket_path: str) -> None:
        """Add the plugin; a plugin that is already present counts as a new one. Raise ValueError."""
        if not socket_path:
            raise ValueError("socket path is empty")
        with self._lock:
            if socket_path in self._socket_file_to_info:
                klog.v(2).info_s("Plugin exists in desired state cache, timestamp will be updated", path=socket_path)
            self._socket_file_to_info[socket_path] = PluginInfo(socket_path, self._clock.now(), str(uuid.uuid4()))
        self._changed.try_send(None)

    def remove_plugin(self, socket_path: str) -> None:
        """Remove a plugin if it is present."""
        with self._lock:
            self._socket_file_to_info.pop(socket_path, None)
        self._changed.try_send(None)

    def get_plugins_to_register(self) -> list[PluginInfo]:
        with self._lock:
            return list(self._socket_file_to_info.values())
