"""Names and little helpers of volumes.

Go: pkg/volume/util/util.go, pkg/volume/validation
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil

if TYPE_CHECKING:
    from pkg.volume.plugins import Spec, VolumePlugin
    from pkg.volume.volume import Volume

READY_FILE_NAME = "ready"
# On a node whose volumes a controller attaches and detaches, not its kubelet.
CONTROLLER_MANAGED_ATTACH_ANNOTATION = "volumes.kubernetes.io/controller-managed-attach-detach"


def get_unique_pod_name(pod: v1.Pod) -> str:
    """What volumes know the pod by: its uid."""
    return pod.metadata.uid


def get_unique_volume_name_from_spec_with_pod(pod_name: str, plugin: VolumePlugin, spec: Spec) -> str:
    """The name of a volume that belongs to one pod alone."""
    return f"{plugin.get_plugin_name()}/{pod_name}-{spec.name()}"


def get_path(volume: Volume) -> str:
    """The volume's path. Raises ValueError when it has none."""
    path = volume.get_path()
    if not path:
        raise ValueError("path is empty")
    return path


def get_pod_volume_names(pod: v1.Pod) -> tuple[set[str], set[str]]:
    """Names of the volumes that containers of the pod mount, and of those that they use as devices."""
    mounts: set[str] = set()
    devices: set[str] = set()
    for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS):
        mounts.update(mount.name for mount in container.volume_mounts)
        devices.update(device.name for device in container.volume_devices)
    return mounts, devices


def is_ready(directory: str) -> bool:
    """Whether set_ready has been called for the directory."""
    return (Path(directory) / READY_FILE_NAME).is_file()


def set_ready(directory: str) -> None:
    """Note that a volume has been set up whole, so that a restart does not do it over. Raises OSError."""
    Path(directory).mkdir(mode=0o750, parents=True, exist_ok=True)
    (Path(directory) / READY_FILE_NAME).touch()


def validate_path_no_backsteps(path: str) -> None:
    """Raises ValueError for a path with a '..' component."""
    if ".." in path.split("/"):
        raise ValueError(f"path must not contain '..': {path}")
