"""Joins a path that somebody else chose to a directory that it must not leave.

Go: github.com/cyphar/filepath-securejoin
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_MAX_LINKS = 255


def secure_join(root: str, unsafe_path: str) -> str:
    """Where the path leads for one whose root directory is `root`: links are followed, and none leads out.

    What does not exist is taken as it is. Holds as long as nobody changes links meanwhile. Raises OSError.
    """
    resolved: list[str] = []
    remaining = unsafe_path.split("/")
    links = 0
    while remaining:
        part = remaining.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            resolved = resolved[:-1]
            continue
        target = _link_target(Path(root, *resolved, part))
        if target is None:
            resolved.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.path.join(root, unsafe_path))
        if target.startswith("/"):
            resolved = []
        remaining = [*target.split("/"), *remaining]
    return os.path.join(root, *resolved)


def _link_target(path: Path) -> str | None:
    """None for what is no link."""
    try:
        return os.readlink(path)
    except OSError as err:
        if err.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return None
        raise
