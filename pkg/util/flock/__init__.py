"""Hold an advisory lock on a file until the process ends.

Go: pkg/util/flock/flock_unix.go
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LockHeldError(OSError):
    """Signal that another process holds the lock. `pid` is the number that the holder wrote into the file, or 0."""

    def __init__(self, path: str, pid: int) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"lock file {path} is held by {holder}")


def acquire(path: str) -> None:
    """Wait for the lock on `path`, creating the file. Raise OSError if it cannot be opened."""
    fcntl.flock(_open(path), fcntl.LOCK_EX)


def try_acquire(path: str) -> None:
    """Take the lock and write our pid into the file, or raise LockHeldError at once."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise LockHeldError(path, _read_pid(path)) from None
    os.ftruncate(fd, os.pwrite(fd, f"{os.getpid()}\n".encode(), 0))


def _open(path: str) -> int:
    # The descriptor stays open on purpose: the kernel drops the lock when the process ends.
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _read_pid(path: str) -> int:
    text = Path(path).read_text(encoding="ascii", errors="replace").strip()
    return int(text) if text.isdigit() else 0
