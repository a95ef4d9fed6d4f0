"""Read small files of the kernel, each with a single system call.

Go: github.com/opencontainers/cgroups/fscommon, github.com/google/cadvisor/container/common/helpers.go
"""

from __future__ import annotations

import errno
import os

from pkg.util import procfs

# UNLIMITED is the numeric value of "max".
UNLIMITED = 2**64 - 1


def read(directory: str, name: str) -> str:
    """Return the whole file. Raise OSError."""
    return procfs.read(f"{directory}/{name}")


def read_or_empty(directory: str, name: str) -> str:
    """Return the file's text, or "" if the file is missing or the kernel does not support it.

    Versions of cgroups and of kernels differ in their files. Raise OSError if the file exists and cannot be read,
    because an unknown usage must not become 0.
    """
    try:
        return read(directory, name)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as err:
        if err.errno == errno.EOPNOTSUPP:
            return ""
        raise


def number(directory: str, name: str) -> int:
    """Return the content of a file that holds one number or "max". Raise OSError or ValueError."""
    return parse_number(read(directory, name))


def number_or_zero(directory: str, name: str) -> int:
    """Return the number in a file, or 0 if the file is missing or the kernel does not support it."""
    text = read_or_empty(directory, name)
    return parse_number(text) if text.strip() else 0


def parse_number(text: str) -> int:
    """Parse a number or "max". A negative number means that no value is set, and becomes 0. Raise ValueError."""
    text = text.strip()
    return UNLIMITED if text == "max" else max(int(text), 0)


def pairs(text: str) -> dict[str, int]:
    """Parse a file whose lines consist of a name and a number."""
    found: dict[str, int] = {}
    for line in procfs.split_lines(text):
        key, _, value = line.partition(" ")
        if value.isdecimal():
            found[key] = int(value)
    return found


def modified(path: str) -> float | None:
    """Return the file's modification time, in seconds since 1970, or None if there is no file.

    The owner of a file can set any time.
    """
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None
