"""Create inotify instances that leak nothing when their creation fails.

Go: github.com/fsnotify/fsnotify; here the watchdog library provides the instances
"""

from __future__ import annotations

import os

from watchdog.observers import inotify_c

from pkg import golang
from pkg.apimachinery.util.runtime import contain

# After a failure, the next attempt follows after this many seconds.
_RETRY_PERIOD = 1.0
# With this event, the kernel reports that it dropped events.
_EVENTS_LOST = inotify_c.InotifyEvent(
    inotify_c.WatchDescriptor(-1), inotify_c.Mask(inotify_c.InotifyConstants.IN_Q_OVERFLOW), 0, b""
)


class Inotify(inotify_c.InotifyFD):
    """Own an inotify instance, and the thread that reads its events. `stop`, then `join`, end both.

    On most machines a user may have 128 instances. A caller that retries until it gets one must not leak any.
    """

    def __init__(self, name: str) -> None:
        """Create the instance; `name` is the name of its thread.

        Raise OSError if no instance or descriptor is available.
        """
        self._inotify_fd = -1
        try:
            super().__init__()
        except OSError:
            # No descriptor was available for the pipe that ends the thread.
            if self._inotify_fd >= 0:
                os.close(self._inotify_fd)
            raise
        self.name = name
        # The base class assumes that the thread reads before the thread has started. If it were stopped in this state,
        # its descriptors would never be closed.
        self._is_reading = False

    def run(self) -> None:
        """Pass on events until stopped. After a failure, report to all handlers that events were lost."""
        lost = False
        while self.should_keep_running():
            with contain("Failed to pass on file events", golang.background(), thread=self.name):
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
        """Reset the state after a failure, when the base class still assumes that the thread reads."""
        with self._lock:
            if self._is_reading and self._closed:
                self._close_resources()
            self._is_reading = False


def start(name: str) -> Inotify:
    """Return an instance whose thread runs. Raise OSError if no instance, descriptor or thread is available."""
    inotify = Inotify(name)
    try:
        inotify.start()
    except (RuntimeError, MemoryError) as err:
        inotify.stop()
        raise OSError(f"start thread {name!r}: {err or 'out of memory'}") from err
    return inotify
