"""The kernel's log, line by line, as it is written.

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
# The kernel never gives more at once.
_LONGEST = 8192


class Message(NamedTuple):
    """A line of the log: its text without what stands before the semicolon, and when after the start of the machine.

    The time is worked out when somebody asks: of thousands of lines that there are at the start few matter.
    """

    boot_time: datetime  # by the steady clock, and so is the timestamp
    microseconds: int
    text: str

    @property
    def timestamp(self) -> datetime:
        return self.boot_time + timedelta(microseconds=self.microseconds)


class KmsgParser:
    """Reads all that the kernel's log holds, and then what comes. Used by one thread."""

    def __init__(self, path: str = KMSG) -> None:
        """Raises OSError when the log may not be read, as in a user namespace, or is not there."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # The clock of the log stands still while the machine sleeps, so this is not always when it was started.
        self._boot_time = clock.RealClock().steady() - timedelta(seconds=time.monotonic())

    def parse(self, ctx: golang.Context) -> Iterator[Message]:
        """The lines, until ctx is done or the log cannot be read any more; the log is closed then.

        To be called once, and read to the end.
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
        # Not in a `finally`, which would take a lock when the generator is collected.
        if not stop() and ctx.err() is not None:
            # Somebody is about to write to it: it must not be another file's number by then.
            os.eventfd_read(wake)
        os.close(wake)
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> str | None:
        """One entry; None when there is none yet, "" when there will be none any more. Raises OSError."""
        while True:
            try:
                return os.read(self._descriptor, _LONGEST).decode(errors="replace")
            except BlockingIOError:
                return None
            except BrokenPipeError:
                # The kernel wrote over what had not been read. The next read goes on behind it.
                klog.v(2).info_s("Short read from kmsg; skipping")

    def _parse_message(self, entry: str) -> Message | None:
        """None for what is no entry of the log: PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT."""
        head, separator, text = entry.partition(";")
        try:
            _priority, _sequence, microseconds, *_rest = head.split(",")
            if not separator:
                raise ValueError("it has no ';'")
            return Message(self._boot_time, int(microseconds), text)
        except ValueError as err:
            klog.v(2).info_s("Unable to parse kmsg message", message=entry, err=err)
            return None
