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
    _remove_all(mounter, path, remove)


def remove_dirs_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove path if only empty directories stand below it. Raises OSError at the first thing that is none."""
    _remove_all(mounter, path, os.rmdir)


def _remove_all(mounter: mount_utils.Interface, path: str, remove_one: Callable[[str], None]) -> None:
    try:
        is_dir = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if is_dir:
        if not mounter.is_likely_not_mount_point(path):
            raise OSError(f"cannot delete directory {path}: it is a mount point")
        for name in sorted(os.listdir(path)):
            _remove_all(mounter, os.path.join(path, name), remove_one)
    remove_one(path)
