"""The directory that a driver mounts a volume on, with what the kubelet knows of the volume beside it.

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
    """Whether something is mounted there; not if there is no such directory. Raises OSError."""
    try:
        return not plugin.host.get_mounter().is_likely_not_mount_point(directory)
    except FileNotFoundError:
        return False
    except OSError:
        klog.error_s(None, log(f"isDirMounted IsLikelyNotMountPoint test failed for dir [{directory}]"))
        raise


def check_unmounted(plugin: CSIPlugin, mount_path: str) -> None:
    """Raises OSError if something is mounted where a driver says to have unmounted.

    DIVERGES (fault of Go): an unmount fails, and is tried again, if something is still mounted at the path.
    Go: pkg/volume/csi/csi_mounter.go, removeMountDir: the directory is left as it is, and the volume counts as
    unmounted.
    Why: a volume that its driver has mounted twice, and unmounted once, is detached while it is mounted.
    Test: csi_attacher_test.py:test_volume_that_was_staged_twice_is_unstaged_twice,
    csi_mounter_test.py:test_tear_down_leaves_what_is_mounted
    """
    if is_dir_mounted(plugin, mount_path):
        raise OSError(log(f"the driver has left something mounted at [{mount_path}]"))


def remove_mount_dir(plugin: CSIPlugin, mount_path: str) -> None:
    """Remove the directory of a volume, and what is kept beside it; nothing if it is still mounted. Raises OSError."""
    if not _remove_unless_mounted(plugin, mount_path):
        return
    volume_path = os.path.dirname(mount_path)
    _check_nothing_else_is_in(volume_path)
    _remove_volume_data(volume_path)
    _remove(volume_path, "failed to delete volume path")


def remove_staging_dir(plugin: CSIPlugin, mount_path: str) -> None:
    """As remove_mount_dir, of a volume that is not staged any more: what its driver has left beside it stays.

    DIVERGES (safer): a file that the driver has left in the directory of the volume does not make the unmount fail.
    Go: pkg/volume/csi/csi_mounter.go, removeMountDir: the unmount fails once, and succeeds the next time, as the data
    of the volume is gone by then.
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
        # The volume must not stay attached to the node because of it.
        klog.error_s(err, log("the driver has left something beside a volume that it has unstaged"))


def clean_up_mount_dir(plugin: CSIPlugin, mount_path: str, what: str) -> None:
    """As remove_mount_dir, after an error that must not be hidden: a failure is logged as `what`."""
    try:
        remove_mount_dir(plugin, mount_path)
    except OSError as err:
        klog.error_s(err, log(f"{what} [{mount_path}]"))


def _remove_unless_mounted(plugin: CSIPlugin, mount_path: str) -> bool:
    """Whether the directory is gone. Raises OSError."""
    klog.v(4).info_s(log(f"removing mount path [{mount_path}]"))
    if is_dir_mounted(plugin, mount_path):
        return False
    klog.v(4).info_s(log(f"dir not mounted, deleting it [{mount_path}]"))
    _remove(mount_path, "failed to remove dir")
    return True


def _check_nothing_else_is_in(volume_path: str) -> None:
    """Raises OSError when the directory cannot be removed with the volume's data.

    DIVERGES (fault of Go): the data of a volume is removed only if its directory can then be removed too.
    Go: pkg/volume/csi/csi_mounter.go, removeMountDir: the data is removed first, whatever else is in the directory.
    Why: without the data the unmount cannot be tried again, and the pod never ends.
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
