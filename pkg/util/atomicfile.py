"""Replace files atomically.

Go: none; each Go package that writes files atomically has its own code
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file atomically, so that no reader sees, and no crash leaves, a partial file. Raise OSError.

    Until it is complete, the file has a name that begins with a dot and ends in random characters, so that concurrent
    writers do not collide.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Sync the directory, so that its entries survive a crash of the machine. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
