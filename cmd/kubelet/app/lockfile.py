"""Watch the lock file for access by another process.

Go: cmd/kubelet/app/server_linux.go
"""

from __future__ import annotations

import ctypes
import os

from pkg import golang, klog

_IN_OPEN = 0x20
_IN_DELETE_SELF = 0x400


def watch_for_lockfile_contention(path: str, done: golang.Channel[None]) -> None:
    """Close `done` as soon as another process opens or removes the file. Raise OSError if it cannot be watched."""
    # This code uses inotify directly because the observers of the package watchdog do not report when a file is opened.
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(path), _IN_OPEN | _IN_DELETE_SELF) < 0:
        raise OSError(ctypes.get_errno(), f"unable to watch lock file {path}")

    def wait() -> None:
        os.read(fd, 4096)
        os.close(fd)
        klog.info_s("Lock file was opened or removed by another process", path=path)
        done.close()

    golang.go(wait, name="lock-file-watch")
