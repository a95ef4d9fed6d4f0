"""Finding again, after a restart, the volumes that were set up before it.

Go: pkg/kubelet/volumemanager/reconciler/reconstruct.go, reconstruct_common.go
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pkg import klog
from pkg.volume import VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.util.operationexecutor.simple_executor import MountedVolume


def volumes_on_disk(pods_dir: str, plugins: VolumePluginMgr) -> Iterator[MountedVolume]:
    """The volumes that have a directory below the pods' ones, as uncertain: nobody knows whether they are whole."""
    for pod_uid, pod_path in _subdirectories(pods_dir):
        for plugin_directory, plugin_path in _subdirectories(os.path.join(pod_path, "volumes")):
            for volume_name, volume_path in _subdirectories(plugin_path):
                try:
                    yield _reconstruct(pod_uid, plugin_directory.replace("~", "/"), volume_name, volume_path, plugins)
                except ValueError as err:
                    # It is left for the clean-up of orphaned pod directories, which says what stands in its way.
                    klog.error_s(err, "Could not construct volume information", podUID=pod_uid, path=volume_path)


def _reconstruct(
    pod_uid: str, plugin_name: str, volume_name: str, volume_path: str, plugins: VolumePluginMgr
) -> MountedVolume:
    plugin = plugins.find_plugin_by_name(plugin_name)
    spec = plugin.construct_volume_spec(volume_name, volume_path).spec
    return MountedVolume(
        volume_name=volumeutil.get_unique_volume_name_from_spec_with_pod(pod_uid, plugin, spec),
        pod_name=pod_uid,
        outer_volume_spec_name=volume_name,
        inner_volume_spec_name=volume_name,
        plugin_name=plugin_name,
        spec=spec,
        mounter=None,
        uncertain=True,
    )


def _subdirectories(path: str) -> list[tuple[str, str]]:
    try:
        names = sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(name, os.path.join(path, name)) for name in names]
