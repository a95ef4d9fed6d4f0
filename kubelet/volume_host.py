"""What volume plugins may ask of the kubelet.

Go: pkg/kubelet/volume_host.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg import golang, mount_utils, volume
from pkg.apimachinery.api.resource import Quantity
from pkg.volume.util import hostutil, subpath

if TYPE_CHECKING:
    from kubelet.kubelet_node_status import KubeletNodeStatus


def new_initialized_volume_plugin_mgr(
    kubelet: KubeletNodeStatus, plugins: list[volume.VolumePlugin]
) -> tuple[volume.VolumePluginMgr, KubeletVolumeHost]:
    """The plugins, told of their host. Raises ValueError when two have one name."""
    host = KubeletVolumeHost(kubelet)
    manager = volume.VolumePluginMgr()
    manager.init_plugins(plugins, host)
    return manager, host


class KubeletVolumeHost:
    """The kubelet as plugins see it."""

    def __init__(self, kubelet: KubeletNodeStatus) -> None:
        self._kubelet = kubelet

    def get_pod_volume_dir(self, pod_uid: str, plugin_name: str, volume_name: str) -> str:
        return self._kubelet.get_pod_volume_dir(pod_uid, plugin_name, volume_name)

    def get_pod_plugin_dir(self, pod_uid: str, plugin_name: str) -> str:
        return self._kubelet.get_pod_plugin_dir(pod_uid, plugin_name)

    def get_mounter(self) -> mount_utils.Interface:
        return self._kubelet.mounter

    def get_hostutil(self) -> hostutil.HostUtils:
        return self._kubelet.hostutil

    def get_subpather(self) -> subpath.Interface:
        return self._kubelet.subpather

    def get_node_allocatable(self) -> dict[str, Quantity]:
        return self._kubelet.get_node_any_way(golang.background()).status.allocatable
