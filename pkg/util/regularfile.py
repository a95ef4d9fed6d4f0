"""Opening files that a pod may have put there: whatever it is, nothing waits for it and no device notices.

Go: none; os.Open takes what there is
"""

from __future__ import annotations

import errno
import os
import stat


class NotRegularFileError(OSError):
    """A directory, a device, a pipe or a socket stands where a file was expected."""


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor, for reading, of the regular file at the path, links followed. The caller closes it.

    Raises NotRegularFileError, and other OSErrors.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return reopen_regular(handle, path)
    finally:
        os.close(handle)


def reopen_regular(handle: int, path: str | os.PathLike[str]) -> int:
    """As open_regular, of the file that the descriptor is of, which may have been opened with O_PATH."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise NotRegularFileError(code, "not a regular file", os.fspath(path))
    # Some files of the kernel wait for more, as a pipe does.
    return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
