"""Remove mounts together with their directories.

Go: k8s.io/mount-utils/mount_helper_common.go
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pkg import klog
from pkg.mount_utils.mount import Interface, MounterForceUnmounter, is_not_mount_point
from pkg.mount_utils.mount_helper_unix import is_corrupted_mnt, path_exists, without_links_above


def cleanup_mount_point(mount_path: str, mounter: Interface, extensive_mount_point_check: bool) -> None:
    """Unmount the path, and remove its directory, which must be empty. A missing path is not an error.

    Raise OSError.
    """
    corrupted = _check_path(mount_path, mounter)
    if corrupted is not None:
        do_cleanup_mount_point(mount_path, mounter, extensive_mount_point_check, corrupted, mounter.unmount)


def cleanup_mount_with_force(
    mount_path: str, mounter: MounterForceUnmounter, extensive_mount_point_check: bool, umount_timeout: float
) -> None:
    """Clean up like cleanup_mount_point, with force if unmounting takes longer than umount_timeout seconds."""
    corrupted = _check_path(mount_path, mounter)
    if corrupted is not None:

        def unmount(path: str) -> None:
            mounter.unmount_with_force(path, umount_timeout)

        do_cleanup_mount_point(mount_path, mounter, extensive_mount_point_check, corrupted, unmount)


def _check_path(mount_path: str, mounter: Interface) -> bool | None:
    """Report whether the path holds a corrupted mount. Return None if the path does not exist."""
    # DIVERGES (safer): this kubelet does not access a path on which something is mounted.
    # Go: k8s.io/mount-utils/mount_helper_common.go, CleanupMountPoint: the Go kubelet always accesses the path.
    # Why: the access blocks, forever if the server of the mount is gone, and the mount could not be unmounted.
    # Test: mount_helper_common_test.py:test_what_is_mounted_is_not_looked_at_through_a_link_either
    real = without_links_above(mount_path)
    if any(point.path == real for point in mounter.list()):
        return False
    try:
        if path_exists(mount_path):
            return False
    except OSError as err:
        if not is_corrupted_mnt(err):
            raise OSError(f"Error checking path: {err}") from err
        return True
    klog.warning_s("Warning: mount cleanup skipped because path does not exist", path=mount_path)
    return None


def do_cleanup_mount_point(
    mount_path: str,
    mounter: Interface,
    extensive_mount_point_check: bool,
    corrupted_mnt: bool,
    unmount: Callable[[str], None],
) -> None:
    """Unmount and remove the path. Check for a mount point only if umount does not report a missing mount."""
    if corrupted_mnt or mounter.can_safely_skip_mount_point_check():
        klog.v(4).info_s("unmounting", path=mount_path, corruptedMount=corrupted_mnt)
        unmount(mount_path)
        remove_path(mount_path)
        return
    if remove_path_if_not_mount_point(mount_path, mounter, extensive_mount_point_check):
        return
    klog.v(4).info_s("path is a mountpoint, unmounting", path=mount_path)
    unmount(mount_path)
    if not remove_path_if_not_mount_point(mount_path, mounter, extensive_mount_point_check):
        raise OSError(f"failed to cleanup mount point {mount_path}")


def remove_path_if_not_mount_point(mount_path: str, mounter: Interface, extensive_mount_point_check: bool) -> bool:
    """Remove the directory unless something is mounted on it. Report whether the directory is gone."""
    try:
        if extensive_mount_point_check:
            not_mounted = is_not_mount_point(mounter, mount_path)
        else:
            not_mounted = mounter.is_likely_not_mount_point(mount_path)
    except FileNotFoundError:
        klog.v(4).info_s("path does not exist", path=mount_path)
        return True
    if not_mounted:
        klog.v(4).info_s("path is not a mountpoint, deleting", path=mount_path)
        _remove(mount_path)
    return not_mounted


def remove_path(mount_path: str) -> None:
    """Remove a file or an empty directory if it exists. Raise OSError."""
    klog.v(4).info_s("Deleting path", path=mount_path)
    try:
        _remove(mount_path)
    except FileNotFoundError:
        klog.v(4).info_s("path does not exist", path=mount_path)


def clean_after_failed_mount(mount_path: str, mounter: Interface) -> None:
    """Unmount what a failed mount may have left behind, and remove its directory.

    This function never raises, so that its caller can report the error of the mount.
    """
    try:
        if mounter.is_mount_point(mount_path):
            mounter.unmount(mount_path)
            if mounter.is_mount_point(mount_path):
                klog.error_s(None, "Still mounted, despite unmounting. Will try again next sync loop.", path=mount_path)
                return
        _remove(mount_path)
    except OSError as err:
        klog.error_s(err, "Failed to clean up after a failed mount", path=mount_path)


def _remove(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    else:
        os.unlink(path)
