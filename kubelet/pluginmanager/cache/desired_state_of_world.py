"""The plugins that have a socket, and so should be registered.

Go: pkg/kubelet/pluginmanager/cache/desired_state_of_world.go
"""

from __future__ import annotations

import threading
import uuid

from kubelet.pluginmanager.cache.actual_state_of_world import PluginInfo
from pkg import golang, klog
from pkg.apimachinery import clock as clock_


class DesiredStateOfWorld:
    """Filled by the watcher. Safe from any thread."""

    def __init__(self, clock: clock_.Clock | None = None) -> None:
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # guards _socket_file_to_info
        self._socket_file_to_info: dict[str, PluginInfo] = {}
        self._changed: golang.Channel[None] = golang.Channel(1)

    def changed(self) -> golang.Channel[None]:
        """Has something to receive whenever plugins came or went since the last receive."""
        return self._changed

    def add_or_update_plugin(self, socket_path: str) -> None:
        """Want the plugin; one that is wanted already counts as another from now on. Raises ValueError."""
        if not socket_path:
            raise ValueError("socket path is empty")
        with self._lock:
            if socket_path in self._socket_file_to_info:
                klog.v(2).info_s("Plugin exists in desired state cache, timestamp will be updated", path=socket_path)
            self._socket_file_to_info[socket_path] = PluginInfo(socket_path, self._clock.now(), str(uuid.uuid4()))
        self._changed.try_send(None)

    def remove_plugin(self, socket_path: str) -> None:
        """Does nothing if there is none."""
        with self._lock:
            self._socket_file_to_info.pop(socket_path, None)
        self._changed.try_send(None)

    def get_plugins_to_register(self) -> list[PluginInfo]:
        with self._lock:
            return list(self._socket_file_to_info.values())
