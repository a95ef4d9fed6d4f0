"""Inotify instances of which nothing is left behind when one cannot be had.

Go: github.com/fsnotify/fsnotify; watchdog has them here
"""

from __future__ import annotations

import os

from watchdog.observers import inotify_c


class Inotify(inotify_c.InotifyFD):
    """An inotify instance, and the thread that reads its events. `stop` and then `join` end both.

    A user may have 128 instances on most machines. Who tries again and again to get one must lose none of them.
    """

    def __init__(self, name: str) -> None:
        """`name`: the thread's. Raises OSError when there is no instance, or no descriptor, to be had."""
        self._inotify_fd = -1
        try:
            super().__init__()
        except OSError:
            # There was no descriptor for the pipe that ends the thread.
            if self._inotify_fd >= 0:
                os.close(self._inotify_fd)
            raise
        self.name = name
        # It takes itself to be reading before its thread has begun: stopped by then, nobody would close its files.
        self._is_reading = False


def start(name: str) -> Inotify:
    """An instance whose thread runs. Raises OSError when there is no instance, descriptor or thread to be had."""
    inotify = Inotify(name)
    try:
        inotify.start()
    except (RuntimeError, MemoryError) as err:
        inotify.stop()
        raise OSError(f"start thread {name!r}: {err or 'out of memory'}") from err
    return inotify
