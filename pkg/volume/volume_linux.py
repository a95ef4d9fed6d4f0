"""Ownership of volumes by the pod's fsGroup.

Go: pkg/volume/volume_linux.go
"""

from __future__ import annotations

import os
import stat

from pkg.api.core import v1
from pkg.volume.volume import Mounter, MounterArgs

_READ_WRITE = 0o660
_READ_ONLY = 0o440
_EXECUTE = 0o110


def set_volume_ownership(mounter: Mounter, path: str, args: MounterArgs) -> None:
    """Give the tree at path to the group of args, readable and, unless read-only, writable by it.

    New files inherit the group. With the policy OnRootMismatch a tree whose root is right is left alone.
    Raises OSError.
    """
    if args.fs_group is None:
        return
    read_only = mounter.get_attributes().read_only
    if args.fs_group_change_policy == v1.FS_GROUP_CHANGE_ON_ROOT_MISMATCH and _root_matches(
        path, args.fs_group, read_only
    ):
        return
    for directory, directories, files in os.walk(path, topdown=False):
        for name in (*files, *directories):
            entry = os.path.join(directory, name)
            if os.path.islink(entry) or name in files:
                _change(entry, args.fs_group, read_only)
        _change(directory, args.fs_group, read_only)


def _change(path: str, fs_group: int, read_only: bool) -> None:
    info = os.lstat(path)
    os.lchown(path, -1, fs_group)
    if stat.S_ISLNK(info.st_mode):
        return
    mode = stat.S_IMODE(info.st_mode) | (_READ_ONLY if read_only else _READ_WRITE)
    if stat.S_ISDIR(info.st_mode):
        mode |= stat.S_ISGID | _EXECUTE
    os.chmod(path, mode)


def _root_matches(path: str, fs_group: int, read_only: bool) -> bool:
    info = os.lstat(path)
    wanted = (_READ_ONLY if read_only else _READ_WRITE) | stat.S_ISGID | _EXECUTE
    return info.st_gid == fs_group and info.st_mode & wanted == wanted
