"""Open the target of an untrusted path below a directory that the path must not leave.

Go: github.com/cyphar/filepath-securejoin
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MAX_LINKS = 255
# Each directory on the way to a file is kept open.
_MAX_DEPTH = 255
_OPEN_PATH = os.O_PATH | os.O_CLOEXEC


def open_in_root(root: str, unsafe_path: str) -> int:
    """Open the file or directory at the path below `root` for reading. Return the descriptor; the caller must close it.

    Links may lead anywhere within `root`, even if they change meanwhile. Raise PermissionError if the path leads out of
    `root`, or to something other than a file or directory. Raise other OSErrors. Go: os.OpenInRoot
    """
    path = os.path.join(root, unsafe_path.lstrip("/"))
    if "\0" in path:
        # The kernel would report this error, but Python raises a different one without calling the kernel.
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    top = os.path.realpath(root)
    found = name_of_target(path)
    if not Path(found).is_relative_to(top):
        raise PermissionError(errno.EACCES, "path escapes from parent", path)
    # The target is opened again by name, because a link to /proc/PID/root leads to files of another mount namespace
    # under names that also exist here.
    handle = open_joined(top, os.path.relpath(found, top))
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise PermissionError(errno.EACCES, "neither a file nor a directory", path)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def name_of_target(path: str) -> str:
    """Return the name, without links, of the path's target. Raise OSError."""
    # O_PATH does not open the target itself, so any target is harmless.
    handle = os.open(path, _OPEN_PATH)
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def open_joined(root: str, unsafe_path: str) -> int:
    """Return an O_PATH descriptor of the path's target, as a process with the root directory `root` would see it.

    The caller must close the descriptor. Links are followed, even if they change meanwhile, and none leads out of
    `root`. O_PATH has no side effects on the target; os.open of /proc/self/fd/DESCRIPTOR opens the target itself. Raise
    OSError.
    """
    # `way` holds the directories on the way, each opened relative to the one before it.
    way = [os.open(root, _OPEN_PATH | os.O_DIRECTORY)]
    try:
        # The list is in reverse order: each step takes the last element.
        remaining = unsafe_path.split("/")[::-1]
        links = 0
        while remaining:
            part = remaining.pop()
            if part == "..":
                if len(way) > 1:
                    os.close(way.pop())
                continue
            if part in ("", "."):
                continue
            if len(way) > _MAX_DEPTH:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), os.path.join(root, unsafe_path))
            way.append(os.open(part, _OPEN_PATH | os.O_NOFOLLOW, dir_fd=way[-1]))
            if not stat.S_ISLNK(os.fstat(way[-1]).st_mode):
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.path.join(root, unsafe_path))
            target = os.readlink("", dir_fd=way[-1])
            os.close(way.pop())
            while len(way) > 1 and target.startswith("/"):
                os.close(way.pop())
            remaining += target.split("/")[::-1]
        return way.pop()
    finally:
        for directory in way:
            os.close(directory)
