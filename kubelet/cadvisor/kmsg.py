"""Read the kernel log line by line as the kernel writes it.

Go: github.com/euank/go-kmsg-parser/kmsgparser
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from pkg import golang, klog
from pkg.apimachinery import clock

KMSG = "/dev/kmsg"
# The kernel never returns more bytes in one read.
_LONGEST = 8192


class Message(NamedTuple):
    """Hold a line of the kernel log: the text after the semicolon, and its time since the boot.

    The timestamp is computed on demand, because few of the thousands of lines at the start matter.
    """

    boot_time: datetime  # `boot_time` is on the steady clock, and so is the timestamp.
    microseconds: int
    text: str

    @property
    def timestamp(self) -> datetime:
        return self.boot_time + timedelta(microseconds=self.microseconds)


class KmsgParser:
    """Read the kernel log from its beginning, and then each new line. Only one thread may use the object."""

    def __init__(self, path: str = KMSG) -> None:
        """Open the log. Raise OSError if it does not exist or must not be read, as in a user namespace."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # The log's clock stops while the machine sleeps, so this value is not always the time of the boot.
        self._boot_time = clock.RealClock().steady() - timedelta(seconds=time.monotonic())

    def parse(self, ctx: golang.Context) -> Iterator[Message]:
        """Yield the lines until ctx is done or the log cannot be read; close the log at the end.

        Call this method once, and consume all its lines.
        """
        wake = os.eventfd(0, os.EFD_CLOEXEC)
        stop = golang.after_func(ctx, lambda: os.eventfd_write(wake, 1))
        try:
            waiting = select.poll()
            for descriptor in (self._descriptor, wake):
                waiting.register(descriptor, select.POLLIN)
            while ctx.err() is None:
                entry = self._read()
                if entry is None:
                    waiting.poll()
                elif not entry:
                    klog.v(4).info_s("Kmsg reader closed, shutting down")
                    break
                elif (message := self._parse_message(entry)) is not None:
                    yield message
        except OSError as err:
            klog.error_s(err, "Error reading /dev/kmsg")
        # This is not a `finally` block, which would take a lock when the generator is garbage-collected.
        if not stop() and ctx.err() is not None:
            # The other thread is about to write to this descriptor. Wait, because the number could belong to another
            # file by then.
            os.eventfd_read(wake)
        os.close(wake)
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> str | None:
        """Return one entry, None if there is no new one yet, or "" at the end of the log. Raise OSError."""
        while True:
            try:
                return os.read(self._descriptor, _LONGEST).decode(errors="replace")
            except BlockingIOError:
                return None
            except BrokenPipeError:
                # The kernel has overwritten entries that were not read. The next read continues after them.
                klog.v(2).info_s("Short read from kmsg; skipping")

    def _parse_message(self, entry: str) -> Message | None:
        """Parse "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT"; return None for any other text."""
        head, separator, text = entry.partition(";")
        try:
            _priority, _sequence, microseconds, *_rest = head.split(",")
            if not separator:
                raise ValueError("missing ';'")
            return Message(self._boot_time, int(microseconds), text)
        except ValueError as err:
            klog.v(2).info_s("Unable to parse kmsg message", message=entry, err=err)
            return None
