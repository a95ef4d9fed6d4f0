"""Create directories and check paths as Go does.

Go: pkg/util/filesystem
"""

from __future__ import annotations

import errno
import os
import stat

# The kernel accepts paths of at most this many bytes. Creating or resolving a path keeps the path of each parent in
# memory, so longer paths must be refused early.
MAX_PATH_LENGTH = 4095
# The kernel reports these errors for a path that does not exist, or a link that leads nowhere.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def check_path_length(path: str) -> None:
    """Raise the kernel's OSError if the path is too long."""
    if len(os.fsencode(path)) > MAX_PATH_LENGTH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path[:MAX_PATH_LENGTH])


def exists(path: str | os.PathLike[str]) -> bool:
    """Report whether the path exists, following links. Raise OSError if that is unknown.

    From Python 3.14 on, Path.exists returns False instead of raising.
    """
    try:
        os.stat(path)
    except OSError as err:
        if err.errno not in _NOTHING_THERE:
            raise
        return False
    return True


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """Return the sorted names in the directory, or none if there is no such directory.

    Raise OSError if the directory cannot be read; Path.glob does not do that in every Python version.
    """
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def mkdir_all(path: str | os.PathLike[str], mode: int) -> None:
    """Create a directory and its missing parents, each with the mode minus the umask. Raise OSError.

    os.makedirs and Path.mkdir apply the mode to the last directory only.
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
            # Another thread created it first, or it is not a directory.
            if not os.path.isdir(directory):
                raise


def _directory_stands(path: str) -> bool:
    """Report whether a directory exists at the path. Raise NotADirectoryError if it is something else.

    This function calls stat only once: between two calls another thread may create the directory.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # The path does not exist, or mkdir will report the error.
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return True


def mkdir_all_with_path_check(path: str, mode: int) -> None:
    """Create a directory like mkdir_all, but refuse a link in its place."""
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
        raise FileExistsError(f"path {path} exists but is not a directory")
    mkdir_all(path, mode)
