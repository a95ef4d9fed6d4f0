"""Directories made as Go makes them.

Go: pkg/util/filesystem
"""

from __future__ import annotations

import os


def mkdir_all(path: str, mode: int) -> None:
    """Make a directory and all above it that are missing, each with the mode. Raises OSError.

    os.makedirs gives the mode to the last one only.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent and parent != path:
        mkdir_all(parent, mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def mkdir_all_with_path_check(path: str, mode: int) -> None:
    """As mkdir_all; a link in place of the directory is refused."""
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
        raise FileExistsError(f"path {path} exists but is not a directory")
    mkdir_all(path, mode)
