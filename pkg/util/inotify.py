"""Inotify instances of which nothing is left behind when one cannot be had.

Go: github.com/fsnotify/fsnotify; watchdog has them here
"""

from __future__ import annotations

import os

from watchdog.observers import inotify_c

from pkg import golang
from pkg.apimachinery.util.runtime import contain

# Seconds from a failure to the next try.
_RETRY_PERIOD = 1.0
# What the kernel tells when it had to drop events.
_EVENTS_LOST = inotify_c.InotifyEvent(
    inotify_c.WatchDescriptor(-1), inotify_c.Mask(inotify_c.InotifyConstants.IN_Q_OVERFLOW), 0, b""
)


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

    def run(self) -> None:
        """Hand on events until it is stopped. After a failure all are told that events were lost."""
        lost = False
        while self.should_keep_running():
            with contain("Failed to hand on what happens to files", golang.background(), thread=self.name):
                if lost:
                    self.handle_event(_EVENTS_LOST)
                lost = True
                for event in self.read_events():
                    self.handle_event(event)
                lost = False
                continue
            self._end_reading()
            self.stopped_event.wait(_RETRY_PERIOD)

    def _end_reading(self) -> None:
        """After a failure it takes itself to be reading still."""
        with self._lock:
            if self._is_reading and self._closed:
                self._close_resources()
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
