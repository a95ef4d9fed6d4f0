"""Removing trees without ever crossing into another filesystem: what is mounted below belongs to somebody.

Go: pkg/util/removeall/removeall.go
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pkg import mount_utils


def remove(path: str) -> None:
    """Remove one file, link or empty directory. Raises OSError."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    else:
        os.unlink(path)


def remove_all_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove path with all below it. Raises OSError at the first thing that stays, a mount point for instance."""
    _remove_all(mounter, _mount_points(mounter), mount_utils.without_links_above(path), remove)


def remove_dirs_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove path if only empty directories stand below it. Raises OSError at the first thing that is none."""
    _remove_all(mounter, _mount_points(mounter), mount_utils.without_links_above(path), os.rmdir)


def _mount_points(mounter: mount_utils.Interface) -> frozenset[str]:
    return frozenset(point.path for point in mounter.list())


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
        raise OSError(f"cannot delete directory {path}: it is a mount point")
    if is_dir:
        for name in sorted(os.listdir(path)):
            _remove_all(mounter, mount_points, os.path.join(path, name), remove_one)
    remove_one(path)
