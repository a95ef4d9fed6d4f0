"""Turns, for threads of which only a few are to work at the same time: those of clients that nobody knows yet, and
those that take WebSockets apart.

DIVERGES: this file has no Go counterpart: goroutines run side by side. Here, when a client closes two hundred
connections at once, as many threads would want the interpreter at the same time, and all else in the process, the sync
loop for one, would wait for it for a quarter of a second. So those threads work a few at a time, and the others sleep.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

MAX_TURNS = 4


class Turns:
    """Turns that many threads share, of which there are MAX_TURNS. Thread-safe.

    Each goes to the thread that has waited longest. Of a threading.Semaphore the thread that has just given its turn
    back takes the turn again before the one that waits is awake: four clients that always have more to say would keep
    everybody else waiting.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock. What the waiting threads sleep on, each a lock that is released with a turn; while there are
        # such threads, no turn is free.
        self._waiting: deque[threading.Lock] = deque()
        self._free = MAX_TURNS

    def take(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            sleep = threading.Lock()
            sleep.acquire()
            self._waiting.append(sleep)
        sleep.acquire()

    def give_back(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


class Turn:
    """What one connection has of the turns. For the thread that serves the connection."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._taken = False

    def __enter__(self) -> None:
        self._turns.take()
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self._taken = False
        self._turns.give_back()

    def pass_on(self) -> None:
        """Let those that wait go first, if this connection has a turn, and take the next one."""
        with self.let_others():
            pass

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
