"""Wait for the signals that end the process.

Go: k8s.io/apiserver/pkg/server/signal.go
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
from types import FrameType

SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ShutdownSignal:
    """Let `wait` return on the first SIGTERM or SIGINT, and end the process at once on the second.

    A signal handler runs between two byte codes of the main thread, which may hold any lock. Therefore the handler only
    records the signal, and the main thread does nothing but wait on a pipe. The main thread must create this object.
    The interpreter itself writes to the pipe, because the kernel may deliver the signal to any thread while the main
    thread waits.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in SHUTDOWN_SIGNALS:
            signal.signal(number, self._handle)
        # As in Go, SIGQUIT prints the stacks of all threads and ends the process.
        faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a signal or `wake`. Return False after `timeout` seconds."""
        ready, _, _ = select.select([self._reader], [], [], timeout)
        return bool(ready)

    def wake(self) -> None:
        """End `wait`. Any thread may call this method."""
        os.write(self._writer, b"\0")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(1)
        self.received = number
