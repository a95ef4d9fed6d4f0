"""Files of the kernel, under /proc and /sys, as text that loses nothing.

Pods choose much of what stands there: names of files, cgroups and processes are bytes, of which the kernel escapes few
or none. So nothing but a newline ends a line, and what is not UTF-8 is kept by surrogate escapes.

Go: os.ReadFile, bufio.Scanner
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_CHUNK = 1 << 16
_ACCIDENTS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def read(path: str | Path) -> str:
    """The whole file. Raises OSError. Several times as fast as open(), and a scrape reads thousands."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    pieces: list[bytes] = []
    try:
        # The kernel gives a list, such as that of mounts or of a cgroup's processes, in pieces smaller than were asked
        # for, which says nothing of its end.
        while piece := os.read(descriptor, _CHUNK):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode(errors="surrogateescape")


def is_accident(err: BaseException | None) -> bool:
    """Whether there was no descriptor or no memory just now, which says nothing of the file; also if it is the cause of
    the error."""
    while err is not None:
        if isinstance(err, MemoryError) or (isinstance(err, OSError) and err.errno in _ACCIDENTS):
            return True
        err = err.__cause__
    return False


def lines(path: str | Path) -> list[str]:
    """The lines of the file that are not empty, without their ends. Raises OSError."""
    return split_lines(read(path))


def split_lines(text: str) -> list[str]:
    """The lines of a text that are not empty; str.splitlines would also split at carriage returns and others."""
    return [line for line in text.split("\n") if line]
