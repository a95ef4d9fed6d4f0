"""Remove directory trees without entering another file system, because a mount below may hold a user's data.

Go: pkg/util/removeall/removeall.go
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pkg import mount_utils
from pkg.util import filetree


class MountedError(OSError):
    """Signal that something is mounted at or below the path to remove."""


def remove(path: str) -> None:
    """Remove one file, link or empty directory. Raise OSError."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    else:
        os.unlink(path)


def remove_all_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove `path` and everything below it as far as possible, then raise the first error as OSError.

    Raise MountedError, before anything is removed, if something is mounted at or below the path. A missing path is not
    an error.
    """
    _remove_unmounted(mounter, path, filetree.remove_all)


def remove_dirs_one_filesystem(mounter: mount_utils.Interface, path: str) -> None:
    """Remove empty directories like remove_all_one_filesystem.

    Anything else below the path is an error.
    """
    _remove_unmounted(mounter, path, filetree.remove_dirs)


def _remove_unmounted(mounter: mount_utils.Interface, path: str, remove_tree: Callable[[str], None]) -> None:
    """Remove a tree in which nothing is mounted.

    DIVERGES (safer): this kubelet removes nothing while something is mounted at or below the path.
    Go: pkg/util/removeall/removeall.go, RemoveAllOneFilesystemCommon: the Go kubelet removes everything except the
    mount points and the directories above them.
    Why: a volume that is still mounted needs the files that were written beside the mount point.
    Test: removeall_test.py:test_nothing_goes_while_something_is_mounted
    """
    root = mount_utils.without_links_above(path)
    for point in sorted(point.path for point in mounter.list()):
        if point == root or point.startswith(f"{root}/"):
            raise MountedError(f"cannot delete directory {path}: {point} is a mount point: unmount it first")
    # remove_tree never enters mounts that appear from now on.
    remove_tree(root)
