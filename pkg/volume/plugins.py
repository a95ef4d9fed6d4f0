"""Volume plugins and how one is found for a volume.

Go: pkg/volume/plugins.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pkg import mount_utils
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.volume.util import hostutil, subpath
from pkg.volume.volume import Mounter, Unmounter


@dataclass(frozen=True, slots=True)
class Spec:
    """A volume as a pod names it, or the persistent volume behind its claim."""

    volume: v1.Volume | None = None
    persistent_volume: v1.PersistentVolume | None = None
    read_only: bool = False

    def name(self) -> str:
        """The volume's name in the pod, or the persistent volume's own."""
        if self.volume is not None:
            return self.volume.name
        return self.persistent_volume.metadata.name if self.persistent_volume is not None else ""


@dataclass(frozen=True, slots=True)
class ReconstructedVolume:
    """What can be told of a volume from its directory alone."""

    spec: Spec


class VolumeHost(Protocol):
    """What a plugin may ask of the kubelet. Safe from any thread."""

    def get_pod_volume_dir(self, pod_uid: str, plugin_name: str, volume_name: str) -> str: ...

    def get_pod_plugin_dir(self, pod_uid: str, plugin_name: str) -> str: ...

    def get_mounter(self) -> mount_utils.Interface: ...

    def get_hostutil(self) -> hostutil.HostUtils: ...

    def get_subpather(self) -> subpath.Interface: ...

    def get_node_allocatable(self) -> dict[str, Quantity]: ...


class VolumePlugin(Protocol):
    """Makes volumes of one kind."""

    def init(self, host: VolumeHost) -> None: ...

    def get_plugin_name(self) -> str: ...

    def get_volume_name(self, spec: Spec) -> str:
        """What tells this volume from others of the plugin. Raises ValueError for a spec of another kind."""
        ...

    def can_support(self, spec: Spec) -> bool: ...

    def requires_remount(self, spec: Spec) -> bool:
        """Whether the volume's content changes by itself and set_up must be called again and again."""
        ...

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter: ...

    def new_unmounter(self, name: str, pod_uid: str) -> Unmounter: ...

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume: ...


class VolumePluginMgr:
    """The plugins of this kubelet. Filled once; after that safe from any thread."""

    def __init__(self) -> None:
        self._plugins: dict[str, VolumePlugin] = {}

    def init_plugins(self, plugins: list[VolumePlugin], host: VolumeHost) -> None:
        """Add the plugins. Raises ValueError when two have one name."""
        for plugin in plugins:
            name = plugin.get_plugin_name()
            if name in self._plugins:
                raise ValueError(f'volume plugin "{name}" was registered more than once')
            plugin.init(host)
            self._plugins[name] = plugin

    def find_plugin_by_spec(self, spec: Spec) -> VolumePlugin:
        """The one plugin for the volume. Raises ValueError when none or several want it."""
        matches = [plugin for plugin in self._plugins.values() if plugin.can_support(spec)]
        if not matches:
            raise ValueError(f'no volume plugin matched for volume "{spec.name()}"')
        if len(matches) > 1:
            names = ",".join(plugin.get_plugin_name() for plugin in matches)
            raise ValueError(f"multiple volume plugins matched: {names}")
        return matches[0]

    def find_plugin_by_name(self, name: str) -> VolumePlugin:
        """Raises ValueError when there is none."""
        if name not in self._plugins:
            raise ValueError(f'no volume plugin matched name: "{name}"')
        return self._plugins[name]
