"""Manage the directory that a driver mounts a volume on, and the data file next to it.

Go: pkg/volume/csi/csi_mounter.go
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pkg import klog
from pkg.util import removeall
from pkg.volume.csi.csi_util import INCOMPLETE, VOL_DATA_FILE_NAME, log, remove_volume_data

if TYPE_CHECKING:
    from pkg.volume.csi.csi_plugin import CSIPlugin


def is_dir_mounted(plugin: CSIPlugin, directory: str) -> bool:
    """Report whether something is mounted at the directory, which may be missing. Raise OSError."""
    try:
        return not plugin.host.get_mounter().is_likely_not_mount_point(directory)
    except FileNotFoundError:
        return False
    except OSError:
        klog.error_s(None, log(f"isDirMounted IsLikelyNotMountPoint test failed for dir [{directory}]"))
        raise


def check_unmounted(plugin: CSIPlugin, mount_path: str) -> None:
    """Raise OSError if something is still mounted where the driver has reported an unmount.

    DIVERGES (fault of Go): an unmount fails, and is retried, if something is still mounted at the path.
    Go: pkg/volume/csi/csi_mounter.go, removeMountDir: the Go kubelet leaves the directory as it is, and the volume
    counts as unmounted.
    Why: a volume that its driver has mounted twice and unmounted once would be detached while it is mounted.
    Test: csi_attacher_test.py:test_volume_that_was_staged_twice_is_unstaged_twice,
    csi_mounter_test.py:test_tear_down_leaves_what_is_mounted
    """
    if is_dir_mounted(plugin, mount_path):
        raise OSError(log(f"the driver has left something mounted at [{mount_path}]"))


def remove_mount_dir(plugin: CSIPlugin, mount_path: str) -> None:
    """Remove a volume's directory and data file, unless something is mounted there. Raise OSError."""
    if not _remove_unless_mounted(plugin, mount_path):
        return
    volume_path = os.path.dirname(mount_path)
    _check_nothing_else_is_in(volume_path)
    _remove_volume_data(volume_path)
    _remove(volume_path, "failed to delete volume path")


def remove_staging_dir(plugin: CSIPlugin, mount_path: str) -> None:
    """Remove the directory and data file of an unstaged volume, and keep other files of the driver next to them.

    DIVERGES (safer): a file that the driver has left in the volume's directory does not make the unmount fail.
    Go: pkg/volume/csi/csi_mounter.go, removeMountDir: the unmount fails once, and succeeds the next time, because the
    volume's data is gone by then.
    Why: the volume is unstaged, and another node may wait for it.
    Test: csi_attacher_test.py:test_what_a_driver_leaves_beside_a_volume_does_not_keep_it_attached
    """
    if not _remove_unless_mounted(plugin, mount_path):
        return
    volume_path = os.path.dirname(mount_path)
    _remove_volume_data(volume_path)
    try:
        _remove(volume_path, "failed to delete volume path")
    except OSError as err:
        # Such a file must not keep the volume attached to the node.
        klog.error_s(err, log("the driver has left files next to a volume that it has unstaged"))


def clean_up_mount_dir(plugin: CSIPlugin, mount_path: str, what: str) -> None:
    """Remove the directory and data file after an error that must not be hidden. Log a failure as `what`."""
    try:
        remove_mount_dir(plugin, mount_path)
    except OSError as err:
        klog.error_s(err, log(f"{what} [{mount_path}]"))


def _remove_unless_mounted(plugin: CSIPlugin, mount_path: str) -> bool:
    """Remove the directory, unless something is mounted there. Report whether it was removed. Raise OSError."""
    klog.v(4).info_s(log(f"removing mount path [{mount_path}]"))
    if is_dir_mounted(plugin, mount_path):
        return False
    klog.v(4).info_s(log(f"dir not mounted, deleting it [{mount_path}]"))
    _remove(mount_path, "failed to remove dir")
    return True


def _check_nothing_else_is_in(volume_path: str) -> None:
    """Raise OSError if the directory has other files besides the volume's data, so that it could not be removed.

    DIVERGES (fault of Go): the kubelet removes a volume's data only if it can then also remove the directory.
    Go: pkg/volume/csi/csi_mounter.go, removeMountDir: the Go kubelet removes the data first, whatever else is in the
    directory.
    Why: without the data the unmount cannot be retried, and the pod never ends.
    Test: csi_mounter_test.py:test_volume_can_be_taken_away_once_its_directory_can_be_removed
    """
    try:
        names = set(os.listdir(volume_path))
    except FileNotFoundError:
        return
    others = names - {VOL_DATA_FILE_NAME, VOL_DATA_FILE_NAME + INCOMPLETE}
    if others:
        raise OSError(log(f"failed to delete volume path [{volume_path}]: it holds {klog.quote(min(others))}"))


def _remove_volume_data(volume_path: str) -> None:
    klog.v(4).info_s(log(f"also deleting volume info data file [{os.path.join(volume_path, VOL_DATA_FILE_NAME)}]"))
    try:
        remove_volume_data(volume_path, VOL_DATA_FILE_NAME)
    except OSError as err:
        raise OSError(log(f"failed to delete volume data file [{volume_path}]: {err}")) from err


def _remove(path: str, what: str) -> None:
    try:
        removeall.remove(path)
    except FileNotFoundError:
        pass
    except OSError as err:
        raise OSError(log(f"{what} [{path}]: {err}")) from err
