"""How few of a server's clients are worked for at the same time, as long as nobody knows who they are.

DIVERGES: this file has no Go counterpart: goroutines run side by side. Here, when a client closes two hundred
connections at once, as many threads would want the interpreter at the same time, and all else in the process, the sync
loop for one, would wait for it for a quarter of a second. So those threads work a few at a time, and the others sleep.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

MAX_TURNS = 4


class Turn:
    """What one connection has of its server's turns, of which there are MAX_TURNS. For the thread that serves it."""

    def __init__(self, turns: threading.Semaphore) -> None:
        self._turns = turns
        self._taken = False

    def __enter__(self) -> None:
        self._turns.acquire()
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self._taken = False
        self._turns.release()

    @contextlib.contextmanager
    def let_others(self) -> Iterator[None]:
        """Let others have their turn meanwhile, if this connection has its own."""
        if not self._taken:
            yield
            return
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
