"""Define the handler of a type of plugins.

Go: pkg/kubelet/pluginmanager/cache/types.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PluginHandler(Protocol):
    """Define what the plugin manager needs from the handler of a type of plugins.

    Operations call the methods on their threads: one at a time for each socket, but several sockets at once.
    """

    def validate_plugin(self, plugin_name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise an error if the plugin is unsuitable, for example because its version is unknown.

        The plugin gets the error's message.
        """
        ...

    def register_plugin(
        self, plugin_name: str, endpoint: str, versions: Sequence[str], plugin_client_timeout: float | None
    ) -> None:
        """Register the plugin, which serves on endpoint. Raise an error if that fails; the plugin gets its message."""
        ...

    def deregister_plugin(self, plugin_name: str, endpoint: str) -> None:
        """Deregister a plugin whose socket is gone or was replaced."""
        ...
