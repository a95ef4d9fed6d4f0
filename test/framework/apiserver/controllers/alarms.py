"""Make delayed calls from one thread, which sleeps until the next call is due."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from pkg import golang


class Alarms:
    """Make delayed calls. All methods are thread-safe. Calls that are not due before `stop` are never made."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The condition guards all fields below.
        self._changed = threading.Condition(threading.Lock())
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopped = False
        self._thread: golang.Thread | None = None

    def start(self) -> None:
        self._stopped = False
        self._thread = golang.go(self._run, name=self._name)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def call_after(self, seconds: float, call: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), call))
            self._changed.notify_all()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        """Wait for the first call that is due, and return it. Return None after `stop`."""
        with self._changed:
            while not self._stopped:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)
            return None
