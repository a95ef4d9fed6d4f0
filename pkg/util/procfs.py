"""Read files of the kernel, under /proc and /sys, as text without losing bytes.

Pods choose much of this text: names of files, cgroups and processes are bytes, of which the kernel escapes few or none.
So only a newline ends a line, and bytes that are not UTF-8 become surrogate escapes.

Go: os.ReadFile, bufio.Scanner
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_CHUNK = 1 << 16
_ACCIDENTS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def read(path: str | Path) -> str:
    """Return the whole file. Raise OSError.

    The function is several times as fast as open(), and a scrape reads thousands of files.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    pieces: list[bytes] = []
    try:
        # The kernel returns a list, such as the mounts or the processes of a cgroup, in pieces that are smaller than
        # requested. A short piece does not mean the end of the file.
        while piece := os.read(descriptor, _CHUNK):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode(errors="surrogateescape")


def is_accident(err: BaseException | None) -> bool:
    """Report whether the error, or one of its causes, is a temporary lack of descriptors or memory.

    Such an error says nothing about the file.
    """
    while err is not None:
        if isinstance(err, MemoryError) or (isinstance(err, OSError) and err.errno in _ACCIDENTS):
            return True
        err = err.__cause__
    return False


def lines(path: str | Path) -> list[str]:
    """Return the file's non-empty lines without their line ends. Raise OSError."""
    return split_lines(read(path))


def split_lines(text: str) -> list[str]:
    """Return the non-empty lines of a text.

    str.splitlines would also split at carriage returns and other characters.
    """
    return [line for line in text.split("\n") if line]
