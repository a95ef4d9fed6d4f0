"""Waiting for the signals that end the process.

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
    """Turns the first SIGTERM or SIGINT into the end of `wait`; a second one ends the process at once.

    A handler runs between two byte codes of the main thread, which may hold any lock. It therefore only
    notes the signal, and the main thread does nothing but wait on a pipe. Make this object there. The interpreter
    writes to the pipe by itself, for the kernel may interrupt any thread, and the main one would wait on.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in SHUTDOWN_SIGNALS:
            signal.signal(number, self._handle)
        # As Go does: all stacks on SIGQUIT, then the end.
        faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Until a signal or `wake`; False after `timeout` seconds."""
        ready, _, _ = select.select([self._reader], [], [], timeout)
        return bool(ready)

    def wake(self) -> None:
        """End `wait`, from any thread."""
        os.write(self._writer, b"\0")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(1)
        self.received = number
