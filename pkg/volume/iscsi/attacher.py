"""Attach disks to the node, and mount them there.

Go: pkg/volume/iscsi/attacher.go
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pkg import klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.util import filesystem
from pkg.volume import util as volumeutil
from pkg.volume.iscsi import iscsi_disk
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import DeviceMounterArgs

if TYPE_CHECKING:
    from pkg.volume.iscsi.iscsi import ISCSIPlugin


class ISCSIAttacher:
    """Log in to the target, and mount the disk. No controller takes part."""

    def __init__(self, plugin: ISCSIPlugin) -> None:
        self._plugin = plugin

    def attach(self, spec: Spec, node_name: str) -> str:
        return ""

    def volumes_are_attached(self, specs: list[Spec], node_name: str) -> dict[str, bool]:
        return {spec.name(): True for spec in specs}

    def wait_for_attach(self, spec: Spec, device_path: str, pod: v1.Pod, timeout: float) -> str:
        """Log in and return the device's path. Raise ValueError, OSError or UncertainProgressError."""
        secret = iscsi_disk.create_secret_map(spec, self._plugin, pod.metadata.namespace)
        disk = iscsi_disk.create_iscsi_disk(spec, pod.metadata.uid, self._plugin, secret)
        return self._plugin.manager.attach_disk(disk, volumeutil.get_volume_mode(spec))

    def get_device_mount_path(self, spec: Spec) -> str:
        return self._plugin.manager.make_global_pd_name(
            iscsi_disk.create_iscsi_disk(spec, types.UID(""), self._plugin, {})
        )

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        """Mount the disk. Raise MountError or OSError.

        Raise UncertainProgressError if the disk is attached and must be detached later.
        """
        with self._plugin.mount_locks.locked(device_mount_path):
            self._mount_device_locked(spec, device_path, device_mount_path, args)

    def _mount_device_locked(
        self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs
    ) -> None:
        mounter = self._plugin.host.get_mounter()
        try:
            if not mounter.is_likely_not_mount_point(device_mount_path):
                return
        except FileNotFoundError:
            filesystem.mkdir_all(device_mount_path, 0o750)
        source = iscsi_disk.get_source(spec)
        options = ["ro"] if iscsi_disk.is_read_only(spec) else []
        if args.selinux_label:
            options = volumeutil.add_selinux_mount_option(options, args.selinux_label)
        options = volumeutil.mount_option_from_spec(spec, *options)
        safe = mount_utils.SafeFormatAndMount(mounter, self._plugin.exec)
        try:
            safe.format_and_mount(device_path, device_mount_path, source.fs_type, options)
        except Exception as err:
            with contextlib.suppress(OSError):
                os.rmdir(device_mount_path)
            if os.path.lexists(device_mount_path):
                # DIVERGES (fault of Go): when the pod is gone, the kubelet detaches a disk that is attached but could
                # not be mounted.
                # Go: pkg/volume/iscsi/attacher.go, (*iscsiAttacher).MountDevice: the failure is final, and the disk
                # counts as not mounted.
                # Why: the kubelet would never log out of the target, not even for its other disks: the directory of
                # this disk counts as a use of the session.
                # Test: iscsi_test.py:test_disk_that_cannot_be_mounted_is_detached_in_the_end
                raise volumetypes.UncertainProgressError(str(err) or type(err).__name__) from err
            raise


class ISCSIDetacher:
    """Undo the work of an ISCSIAttacher."""

    def __init__(self, plugin: ISCSIPlugin) -> None:
        self._plugin = plugin

    def detach(self, volume_name: str, node_name: str) -> None: ...

    def unmount_device(self, device_mount_path: str) -> None:
        """Unmount and detach the disk. Raise OSError."""
        detach(device_mount_path, self._plugin.manager.detach_disk)


def detach(path: str, detach_disk: Callable[[str], None]) -> None:
    """Detach the disk and remove its directory. Raise OSError."""
    try:
        detach_disk(path)
    except (OSError, ValueError) as err:
        raise OSError(f"iscsi: failed to detach disk: {path}\nError: {err}") from err
    klog.v(4).info_s("iscsi: detached the disk", path=path)
