"""Removing trees without ever crossing into another filesystem: what is mounted below belongs to somebody.

Go: pkg/util/removeall/removeall.go
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pkg import mount_utils


class MountedError(OSError):
    """Something is mounted at or below what is to be removed."""


def remove(path: str) -> None:
    """Remove one file, link or empty directory. Raises OSError."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    else:
        os.unlink(path)


def remove_all_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove path with all below it.

    Raises MountedError before anything is removed while something is mounted at path or below it, and OSError at the
    first thing that stays.
    """
    _remove_unmounted(mounter, path, remove)


def remove_dirs_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove path if only empty directories stand below it.

    Raises MountedError as remove_all_one_filesystem does, and OSError at the first thing that is no empty directory.
    """
    _remove_unmounted(mounter, path, os.rmdir)


def _remove_unmounted(mounter: mount_utils.Interface, path: str, remove_one: Callable[[str], None]) -> None:
    """DIVERGES: Go removes everything that it finds before it comes to a mount point."""
    root = mount_utils.without_links_above(path)
    mount_points = frozenset(point.path for point in mounter.list())
    for point in sorted(mount_points):
        if point == root or point.startswith(f"{root}/"):
            raise MountedError(f"cannot delete directory {path}: {point} is a mount point: unmount it first")
    _remove_all(mounter, mount_points, root, remove_one)


def _remove_all(
    mounter: mount_utils.Interface, mount_points: frozenset[str], path: str, remove_one: Callable[[str], None]
) -> None:
    # Before anything looks at the path: behind it may be a server that does not answer.
    mounted = path in mount_points
    try:
        is_dir = not mounted and stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    # Something may have been mounted meanwhile.
    if mounted or (is_dir and not mounter.is_likely_not_mount_point(path)):
        raise MountedError(f"cannot delete directory {path}: it is a mount point: unmount it first")
    if is_dir:
        for name in sorted(os.listdir(path)):
            _remove_all(mounter, mount_points, os.path.join(path, name), remove_one)
    remove_one(path)
