"""Directories made as Go makes them.

Go: pkg/util/filesystem
"""

from __future__ import annotations

import errno
import os
import stat

# No path that the kernel takes is longer, in bytes. To make or resolve one, each part is held with its own path.
MAX_PATH_LENGTH = 4095
# What the kernel says of a path at which nothing stands, or a link that leads nowhere.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def check_path_length(path: str) -> None:
    """Raises OSError as the kernel does for a path that is too long."""
    if len(os.fsencode(path)) > MAX_PATH_LENGTH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path[:MAX_PATH_LENGTH])


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether something stands at the path, links followed. Raises OSError when that cannot be told.

    Path.exists does not always: from Python 3.14 on it says no instead.
    """
    try:
        os.stat(path)
    except OSError as err:
        if err.errno not in _NOTHING_THERE:
            raise
        return False
    return True


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """The names in the directory, sorted; none if there is no such directory.

    Raises OSError for a directory that cannot be read. Not every Path.glob does that.
    """
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def mkdir_all(path: str | os.PathLike[str], mode: int) -> None:
    """Make a directory and all above it that are missing, each with the mode less the umask. Raises OSError.

    os.makedirs and Path.mkdir give the mode to the last directory only.
    """
    missing: list[str] = []
    directory = os.fspath(path)
    check_path_length(directory)
    while directory and not _directory_stands(directory):
        missing.append(directory)
        directory = os.path.dirname(directory.rstrip("/"))
    for directory in reversed(missing):
        try:
            os.mkdir(directory, mode)
        except FileExistsError:
            # Somebody else was quicker, or it is no directory.
            if not os.path.isdir(directory):
                raise


def _directory_stands(path: str) -> bool:
    """Whether a directory is at the path. Raises NotADirectoryError if it is something else.

    It looks once: between two looks another thread may make the directory.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # Nothing is there, or mkdir will say what is wrong.
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return True


def mkdir_all_with_path_check(path: str, mode: int) -> None:
    """As mkdir_all; a link in place of the directory is refused."""
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
        raise FileExistsError(f"path {path} exists but is not a directory")
    mkdir_all(path, mode)
