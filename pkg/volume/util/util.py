"""Build names of volumes, and provide helpers for plugins and the volume manager.

Go: pkg/volume/util/util.go, pkg/volume/validation
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pkg import klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types
from pkg.securitycontext import determine_effective_run_as_user, determine_effective_security_context
from pkg.util import filesystem

if TYPE_CHECKING:
    from pkg import mount_utils
    from pkg.volume.plugins import Spec, VolumeHost, VolumePlugin, VolumePluginMgr
    from pkg.volume.util.volumepathhandler import BlockVolumePathHandler
    from pkg.volume.volume import Volume

READY_FILE_NAME = "ready"
# Nodes whose volumes are attached and detached by a controller, not by their kubelet, have this annotation.
CONTROLLER_MANAGED_ATTACH_ANNOTATION = "volumes.kubernetes.io/controller-managed-attach-detach"
# `MOUNTS_IN_GLOBAL_PD_PATH` is the directory, below a plugin's own, for the global mounts of its volumes.
MOUNTS_IN_GLOBAL_PD_PATH = "mounts"
# This annotation of a persistent volume names a group that processes that use the volume must be in.
VOLUME_GID_ANNOTATION_KEY = "pv.beta.kubernetes.io/gid"

_KUBERNETES_PLUGIN_PATH_PREFIX = "/plugins/kubernetes.io/"


def is_ready(directory: str) -> bool:
    """Report whether set_ready has been called for the directory."""
    return (Path(directory) / READY_FILE_NAME).is_file()


def set_ready(directory: str) -> None:
    """Record that a volume is completely set up, so that a restart does not repeat the set-up.

    A failure is only logged: the volume exists, and must be recorded as mounted, or it would never be unmounted.
    """
    try:
        filesystem.mkdir_all(directory, 0o750)
        (Path(directory) / READY_FILE_NAME).touch()
    except OSError as err:
        klog.error_s(err, "Failed to record that a volume is set up", path=os.path.join(directory, READY_FILE_NAME))


def get_path(volume: Volume) -> str:
    """Return the volume's path. Raise ValueError if it has none."""
    path = volume.get_path()
    if not path:
        raise ValueError(f"path is empty {type(volume).__name__}")
    return path


def unmount_via_empty_dir(directory: str, host: VolumeHost, vol_name: str, vol_spec: Spec, pod_uid: types.UID) -> None:
    """Tear down a volume whose files are in an emptyDir. Raise OSError."""
    klog.v(3).info_s("Tearing down volume for pod", volumeName=vol_name, podUID=pod_uid, path=directory)
    host.new_wrapper_unmounter(vol_name, vol_spec, pod_uid).tear_down_at(directory)


def mount_option_from_spec(spec: Spec, *options: str) -> list[str]:
    """Return the mount options of the persistent volume, joined with the given options."""
    pv = spec.persistent_volume
    if pv is not None and v1.MOUNT_OPTION_ANNOTATION in pv.metadata.annotations:
        return join_mount_options(pv.metadata.annotations[v1.MOUNT_OPTION_ANNOTATION].split(","), list(options))
    if pv is not None and pv.spec.mount_options:
        return join_mount_options(pv.spec.mount_options, list(options))
    return list(options)


def join_mount_options(user_options: list[str], system_options: list[str]) -> list[str]:
    """Return both lists, sorted and without duplicates. Empty options of the user are left out."""
    return sorted({option for option in user_options if option} | set(system_options))


def contains_access_mode(modes: list[str], mode: str) -> bool:
    return mode in modes


def contains_all_access_modes(indexed_modes: list[str], requested_modes: list[str]) -> bool:
    return set(requested_modes) <= set(indexed_modes)


def get_unique_pod_name(pod: v1.Pod) -> str:
    """Return the pod's name for volumes, which is its UID."""
    return pod.metadata.uid


def get_unique_volume_name(plugin_name: str, volume_name: str) -> str:
    """Return a name that is unique among all volumes; volume_name must be unique for the plugin."""
    return f"{plugin_name}/{volume_name}"


def get_unique_volume_name_from_spec_with_pod(pod_name: str, volume_plugin: VolumePlugin, volume_spec: Spec) -> str:
    """Return the name of a volume that belongs to a single pod."""
    return f"{volume_plugin.get_plugin_name()}/{pod_name}-{volume_spec.name()}"


def get_unique_volume_name_from_spec(volume_plugin: VolumePlugin, volume_spec: Spec) -> str:
    """Return the name of a volume that pods may share. Raise ValueError if the plugin cannot name it."""
    try:
        volume_name = volume_plugin.get_volume_name(volume_spec)
        problem = "<nil>"
    except ValueError as err:
        volume_name, problem = "", str(err)
    if not volume_name:
        name = klog.quote(volume_spec.name())
        raise ValueError(f"failed to GetVolumeName from volumePlugin for volumeSpec {name} err={problem}")
    return get_unique_volume_name(volume_plugin.get_plugin_name(), volume_name)


def split_unique_name(unique_name: str) -> tuple[str, str]:
    """Return the names of the plugin and the volume. Raise ValueError if the name cannot be split."""
    components = unique_name.split("/", 2)
    if len(components) != 3:
        raise ValueError(f"cannot split volume unique name {unique_name} to plugin/volume components")
    return f"{components[0]}/{components[1]}", components[2]


def get_volume_mode(volume_spec: Spec) -> str:
    """Return Filesystem or Block. Raise ValueError for a persistent volume without a mode."""
    if volume_spec.persistent_volume is None:
        return v1.PERSISTENT_VOLUME_FILESYSTEM
    mode = volume_spec.persistent_volume.spec.volume_mode
    if mode is None:
        raise ValueError(f"cannot get volumeMode for volume: {volume_spec.name()}")
    return mode


def get_persistent_volume_claim_qualified_name(claim: v1.PersistentVolumeClaim) -> str:
    """Return the namespace and name of the claim."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    return f"{namespace}/{name}" if namespace else name


def check_volume_mode_filesystem(volume_spec: Spec) -> bool:
    """Report whether the volume is mounted, not mapped as a device. Raise ValueError as get_volume_mode does."""
    return get_volume_mode(volume_spec) != v1.PERSISTENT_VOLUME_BLOCK


def make_absolute_path(path: str) -> str:
    """Return the path with a leading slash. Go's function also handles Windows paths."""
    return os.path.normpath("/" + path.lstrip("/"))


def map_block_volume(
    blk_util: BlockVolumePathHandler,
    device_path: str,
    global_map_path: str,
    pod_volume_map_path: str,
    volume_map_name: str,
    pod_uid: types.UID,
) -> None:
    """Bind the device for the pod, link it into the pod's directory, and keep it open. Raise OSError."""
    try:
        blk_util.map_device(device_path, global_map_path, pod_uid, bind_mount=True)
    except OSError as err:
        raise OSError(
            f"blkUtil.MapDevice failed. devicePath: {device_path}, globalMapPath:{global_map_path}, "
            f"podUID: {pod_uid}, bindMount: true: {err}"
        ) from err
    try:
        blk_util.map_device(device_path, pod_volume_map_path, volume_map_name, bind_mount=False)
    except OSError as err:
        raise OSError(
            f"blkUtil.MapDevice failed. devicePath: {device_path}, podVolumeMapPath:{pod_volume_map_path}, "
            f"volumeMapName: {volume_map_name}, bindMount: false: {err}"
        ) from err
    # A loop device keeps the device open, so that no other device can take its name unnoticed.
    try:
        blk_util.attach_file_device(os.path.join(global_map_path, pod_uid))
    except OSError as err:
        raise OSError(
            f"blkUtil.AttachFileDevice failed. globalMapPath:{global_map_path}, podUID: {pod_uid}: {err}"
        ) from err


def unmap_block_volume(
    blk_util: BlockVolumePathHandler,
    global_unmap_path: str,
    pod_device_unmap_path: str,
    volume_map_name: str,
    pod_uid: types.UID,
) -> None:
    """Undo map_block_volume, in reverse order. Raise OSError."""
    try:
        blk_util.detach_file_device(os.path.join(global_unmap_path, pod_uid))
    except OSError as err:
        raise OSError(
            f"blkUtil.DetachFileDevice failed. globalUnmapPath:{global_unmap_path}, podUID: {pod_uid}: {err}"
        ) from err
    try:
        blk_util.unmap_device(pod_device_unmap_path, volume_map_name, bind_mount=False)
    except OSError as err:
        raise OSError(
            f"blkUtil.UnmapDevice failed. podDeviceUnmapPath:{pod_device_unmap_path}, "
            f"volumeMapName: {volume_map_name}, bindMount: false: {err}"
        ) from err
    try:
        blk_util.unmap_device(global_unmap_path, pod_uid, bind_mount=True)
    except OSError as err:
        raise OSError(
            f"blkUtil.UnmapDevice failed. globalUnmapPath:{global_unmap_path}, podUID: {pod_uid}, "
            f"bindMount: true: {err}"
        ) from err


def is_local_ephemeral_volume(volume: v1.Volume) -> bool:
    """Report whether the volume is on the node's disk and is deleted with its pod."""
    on_disk = volume.empty_dir is not None and volume.empty_dir.medium == v1.STORAGE_MEDIUM_DEFAULT
    return on_disk or volume.git_repo is not None or volume.config_map is not None


def get_pod_volume_names(
    pod: v1.Pod, collect_selinux_options: bool = False
) -> tuple[set[str], set[str], dict[str, list[v1.SELinuxOptions]]]:
    """Return the names of the volumes that containers of the pod mount, and of those that they use as devices.

    With collect_selinux_options, also return the SELinux options of the containers that mount each volume.
    """
    mounts: set[str] = set()
    devices: set[str] = set()
    selinux_options: dict[str, list[v1.SELinuxOptions]] = {}
    for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS):
        options = None
        if collect_selinux_options:
            options = determine_effective_security_context(pod, container).se_linux_options
        for mount in container.volume_mounts:
            mounts.add(mount.name)
            if options is not None:
                selinux_options.setdefault(mount.name, []).append(options)
        devices.update(device.name for device in container.volume_devices)
    return mounts, devices, selinux_options


def fs_user_from(pod: v1.Pod) -> int | None:
    """Return the user that all containers of the pod run as, or None if they differ or one has no user."""
    users = {
        determine_effective_run_as_user(pod, container)
        for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS)
    }
    return users.pop() if len(users) == 1 else None


def has_mount_refs(mount_path: str, mount_refs: list[str]) -> bool:
    """Report whether one of mount_refs is a mount that the kubelet did not create.

    An unmount would disturb the users of such a mount. The kubelet's directory may also be visible under another path,
    so only the part after it is compared.
    """
    start = mount_path.find(_KUBERNETES_PLUGIN_PATH_PREFIX)
    path_to_find = mount_path[start:] if start >= 0 else mount_path
    return any(path_to_find not in ref for ref in mount_refs)


def is_multi_attach_allowed(volume_spec: Spec) -> bool:
    """Report whether the volume may be attached to several nodes.

    False is certain. True means only that nothing forbids it; the driver must then reject a second attachment
    (kubernetes issue 40669).
    """
    volume = volume_spec.volume
    if volume is not None and (volume.azure_disk is not None or volume.cinder is not None):
        return False
    if volume_spec.persistent_volume is None or not volume_spec.persistent_volume.spec.access_modes:
        return True
    modes = volume_spec.persistent_volume.spec.access_modes
    return v1.READ_WRITE_MANY in modes or v1.READ_ONLY_MANY in modes


def is_attachable_volume(volume_spec: Spec, volume_plugin_mgr: VolumePluginMgr) -> bool:
    try:
        return volume_plugin_mgr.find_attachable_plugin_by_spec(volume_spec) is not None
    except ValueError:
        return False


def is_device_mountable_volume(volume_spec: Spec, volume_plugin_mgr: VolumePluginMgr) -> bool:
    try:
        return volume_plugin_mgr.find_device_mountable_plugin_by_spec(volume_spec) is not None
    except ValueError:
        return False


def get_reliable_mount_refs(mounter: mount_utils.Interface, mount_path: str) -> list[str]:
    """List the other mount points of the same file system. Raise OSError.

    On old kernels, the list of mounts is unreliable while mounts change, and Go retries for a minute. Newer kernels
    need no retry.
    """
    return mounter.get_mount_refs(mount_path)


def validate_path_no_backsteps(path: str) -> None:
    """Raise ValueError for a path with a '..' component."""
    if ".." in path.split("/"):
        raise ValueError(f"path must not contain '..': {path}")
