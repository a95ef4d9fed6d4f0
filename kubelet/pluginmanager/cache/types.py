"""Who takes plugins of one type.

Go: pkg/kubelet/pluginmanager/cache/types.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PluginHandler(Protocol):
    """Its methods are called on threads of operations: for one socket one after another, for several at once."""

    def validate_plugin(self, plugin_name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises what makes the plugin unfit, as an unknown version; the plugin is told."""
        ...

    def register_plugin(
        self, plugin_name: str, endpoint: str, versions: Sequence[str], plugin_client_timeout: float | None
    ) -> None:
        """Take the plugin, which serves on endpoint. Raises what keeps it from being used; the plugin is told."""
        ...

    def deregister_plugin(self, plugin_name: str, endpoint: str) -> None:
        """The plugin's socket is gone, or another has taken its place."""
        ...
