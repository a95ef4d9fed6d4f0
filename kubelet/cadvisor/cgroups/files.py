"""Small files of the kernel, read in one go.

Go: github.com/opencontainers/cgroups/fscommon, github.com/google/cadvisor/container/common/helpers.go
"""

from __future__ import annotations

import errno
import os

from pkg.util import procfs

# What "max" is as a number.
UNLIMITED = 2**64 - 1


def read(directory: str, name: str) -> str:
    """The whole file. Raises OSError."""
    return procfs.read(f"{directory}/{name}")


def read_or_empty(directory: str, name: str) -> str:
    """The file's text, or "" when the file is missing or the kernel does not support it: cgroups and kernels differ.

    Raises OSError when it is there and cannot be read: nothing used is another thing than nothing known.
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
    """A file that is one number, or "max". Raises OSError, ValueError."""
    return parse_number(read(directory, name))


def number_or_zero(directory: str, name: str) -> int:
    """The same; 0 for a file that is not there, or that the kernel does not offer."""
    text = read_or_empty(directory, name)
    return parse_number(text) if text.strip() else 0


def parse_number(text: str) -> int:
    """Negative numbers, which mean that nothing is set, are 0. Raises ValueError."""
    text = text.strip()
    return UNLIMITED if text == "max" else max(int(text), 0)


def pairs(text: str) -> dict[str, int]:
    """A file of lines with a name and a number each."""
    found: dict[str, int] = {}
    for line in procfs.split_lines(text):
        key, _, value = line.partition(" ")
        if value.isdecimal():
            found[key] = int(value)
    return found


def modified(path: str) -> float | None:
    """When the file was last changed, in seconds since 1970 as anybody may have set them; None when it is not there."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None
