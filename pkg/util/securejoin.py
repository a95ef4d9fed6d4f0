"""Opens what a path that somebody else chose leads to, below a directory that it must not leave.

Go: github.com/cyphar/filepath-securejoin
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MAX_LINKS = 255
# Each directory on the way to a file is held open.
_MAX_DEPTH = 255
_OPEN_PATH = os.O_PATH | os.O_CLOEXEC


def open_in_root(root: str, unsafe_path: str) -> int:
    """A descriptor, for reading, of the file or directory at the path below root. The caller closes it.

    Links may lead anywhere within root, whoever changes them meanwhile. Raises PermissionError for what leads out
    of it or is neither a file nor a directory, and other OSErrors. Go: os.OpenInRoot
    """
    path = os.path.join(root, unsafe_path.lstrip("/"))
    if "\0" in path:
        # As the kernel would say, had Python asked it.
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    top = os.path.realpath(root)
    found = name_of_target(path)
    if not Path(found).is_relative_to(top):
        raise PermissionError(errno.EACCES, "path escapes from parent", path)
    # By its name: a link to /proc/PID/root leads to files of another mount namespace, which have names as here.
    handle = open_joined(top, os.path.relpath(found, top))
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise PermissionError(errno.EACCES, "neither a file nor a directory", path)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def name_of_target(path: str) -> str:
    """The name, without links, of what the path leads to. Raises OSError."""
    # This opens nothing yet, so it may lead to whatever it likes.
    handle = os.open(path, _OPEN_PATH)
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def open_joined(root: str, unsafe_path: str) -> int:
    """A handle of what the path leads to for one whose root directory is `root`. The caller closes it.

    Links are followed, whoever changes them meanwhile, and none leads out. The handle is opened with O_PATH, so nothing
    notices: os.open of /proc/self/fd/HANDLE opens what it is of. Raises OSError.
    """
    # The directories on the way, each opened from the one before it.
    way = [os.open(root, _OPEN_PATH | os.O_DIRECTORY)]
    try:
        # In reverse: each step takes the last one off.
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
