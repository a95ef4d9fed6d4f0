"""Open files that a pod may have replaced, without blocking and without side effects on devices.

Go: none; os.Open opens any kind of file
"""

from __future__ import annotations

import errno
import os
import stat


class NotRegularFileError(OSError):
    """Signal that a path holds a directory, a device, a pipe or a socket instead of a regular file."""


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open the regular file at the path for reading, following links.

    Return the descriptor, which the caller must close.

    Raise NotRegularFileError or another OSError.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return reopen_regular(handle, path)
    finally:
        os.close(handle)


def reopen_regular(handle: int, path: str | os.PathLike[str]) -> int:
    """Reopen the regular file of a descriptor, which may have been opened with O_PATH, like open_regular."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise NotRegularFileError(code, "not a regular file", os.fspath(path))
    # Reading some files of the kernel waits for more data, like reading a pipe.
    return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
