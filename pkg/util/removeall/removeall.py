"""Removing trees without ever crossing into another filesystem: what is mounted below belongs to somebody.

Go: pkg/util/removeall/removeall.go
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pkg import mount_utils
from pkg.util import filetree


class MountedError(OSError):
    """Something is mounted at or below what is to be removed."""


def remove(path: str) -> None:
    """Remove one file, link or empty directory. Raises OSError."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    else:
        os.unlink(path)


def remove_all_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove path with all below it, as far as that can be done, and then raise the first fault as OSError.

    Raises MountedError before anything is removed while something is mounted at path or below it. Fine if path is not
    there.
    """
    _remove_unmounted(mounter, path, filetree.remove_all)


def remove_dirs_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """As remove_all_one_filesystem, but only empty directories are removed, and all else is a fault."""
    _remove_unmounted(mounter, path, filetree.remove_dirs)


def _remove_unmounted(mounter: mount_utils.Interface, path: str, remove_tree: Callable[[str], None]) -> None:
    """DIVERGES (safer): nothing is removed while something is mounted at or below the path.
    Go: pkg/util/removeall/removeall.go, RemoveAllOneFilesystemCommon: everything is removed but the mount points and
    the directories above them.
    Why: a volume that is still mounted needs the files that were written beside the mount point.
    Test: removeall_test.py:test_nothing_goes_while_something_is_mounted
    """
    root = mount_utils.without_links_above(path)
    for point in sorted(point.path for point in mounter.list()):
        if point == root or point.startswith(f"{root}/"):
            raise MountedError(f"cannot delete directory {path}: {point} is a mount point: unmount it first")
    # What is mounted from now on is never entered.
    remove_tree(root)
