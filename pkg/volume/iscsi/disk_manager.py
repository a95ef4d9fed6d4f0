"""Bind a disk that is mounted on the node into a pod.

Go: pkg/volume/iscsi/disk_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pkg import klog, mount_utils
from pkg.util import filesystem
from pkg.volume import util as volumeutil
from pkg.volume.volume import MounterArgs
from pkg.volume.volume_linux import VolumeOwnership

if TYPE_CHECKING:
    from pkg.volume.iscsi.iscsi import ISCSIDiskMounter
    from pkg.volume.iscsi.iscsi_disk import ISCSIDisk


class DiskManager(Protocol):
    """Define how disks are attached to the node. Every method may raise OSError and may be slow."""

    def make_global_pd_name(self, disk: ISCSIDisk) -> str:
        """Return the mount point of the disk on the node."""
        ...

    def make_global_vdpd_name(self, disk: ISCSIDisk) -> str:
        """Return the directory of the disk's bind mounts for pods that use it as a block device."""
        ...

    def attach_disk(self, disk: ISCSIDisk, volume_mode: str) -> str:
        """Log in, wait for the device and return its path.

        Raise UncertainProgressError if the disk may be attached despite an error.
        """
        ...

    def detach_disk(self, mount_path: str) -> None:
        """Unmount the disk, log out unless other disks use the session, and remove the disk's directory.

        The removal never crosses a mount point.
        """
        ...

    def detach_block_iscsi_disk(self, map_path: str) -> None: ...


def disk_set_up(
    manager: DiskManager, mounter: ISCSIDiskMounter, path: str, interface: mount_utils.Interface, args: MounterArgs
) -> None:
    """Bind the disk's mount to the pod's path. Raise OSError."""
    try:
        if not interface.is_likely_not_mount_point(path):
            return
    except FileNotFoundError:
        filesystem.mkdir_all(path, 0o750)
    options = volumeutil.join_mount_options(mounter.mount_options, ["bind", "ro"] if mounter.read_only else ["bind"])
    source = manager.make_global_pd_name(mounter.disk)
    try:
        interface.mount_sensitive_without_systemd(source, path, "", options, [])
    except OSError as err:
        klog.error_s(err, "Failed to bind mount", source=source, target=path)
        mount_utils.clean_after_failed_mount(path, interface)
        raise
    if not mounter.read_only:
        complete = volumeutil.fs_group_complete_hook(mounter.disk.plugin, None)
        ownership = VolumeOwnership(mounter, path, args.fs_group, args.fs_group_change_policy, complete)
        try:
            ownership.change_permissions()
        except OSError as err:
            # As in Go, the pod gets the volume as it is.
            klog.error_s(err, "iscsi: failed to change the ownership of the volume", path=path)
