"""Files that are replaced as a whole.

Go: none; there each package that needs this has its own
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file so that neither a reader nor a crash can find half of it. Raises OSError.

    Until it is complete its name begins with a dot, and ends in something random: writers do not disturb each other.
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
    """Have the directory outlast a crash of the machine with the names that are in it now. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
