"""Limit how many threads of certain kinds work at the same time.

These threads serve clients that have not authenticated yet, decode WebSockets or logs, run probes, or count the files
of volumes.

This file has no Go counterpart, because goroutines run in parallel. In CPython, when a client closes two hundred
connections at once, two hundred threads would compete for the interpreter. Everything else in the process, such as the
sync loop, would wait a quarter of a second for it. So only a few of those threads work at a time, and the others sleep.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Iterator

from pkg.golang.context import Context, with_value

MAX_TURNS = 4
# A connection keeps this many seconds of processor time as an advantage after a pause; a few short turns take as much.
# If hundreds of connections pause at the same time, a new connection waits until each of them has used its advantage.
ALLOWANCE = 0.0005


class Turns:
    """Hand out a limited number of turns to many threads. All methods are thread-safe.

    Each turn goes to the thread that has waited longest. A threading.Semaphore does not ensure this: the thread that
    has just released the semaphore acquires it again before a waiting thread is awake, so four busy clients could keep
    all other clients waiting.

    With `by_use`, a turn goes to the connection that has used the least processor time. A connection with little to do
    then does not wait for the busy ones, however many there are. A new connection is treated as if it had used as much
    as the connection with the last turn. The time of its first turn is also charged, in equal shares, to all
    connections; otherwise new connections could always go first. Hundreds of new connections with much work may arrive
    together, so a turn should be short: half a millisecond. A thread with more work passes its turn on.
    """

    def __init__(self, count: int = MAX_TURNS, *, by_use: bool = False) -> None:
        self._by_use = by_use
        self._lock = threading.Lock()
        # _lock guards these fields. The heap holds the locks that the waiting threads sleep on; a lock is released
        # together with a turn. The heap is ordered by the time that the connections have used, then by arrival. While a
        # thread waits, no turn is free.
        self._waiting: list[tuple[float, int, threading.Lock]] = []
        self._arrivals = itertools.count()
        self._free = count
        # `_level` is the largest time that a connection had used when it got a turn, plus the shares of newcomers'
        # first turns.
        self._level = 0.0

    def level(self) -> float:
        """Return the seconds of processor time that a new connection is charged with at the start."""
        with self._lock:
            return self._level

    def take(self, had: float) -> tuple[float, bool]:
        """Wait for a turn for a connection that has used `had` seconds.

        Return the seconds that the connection is charged with, and whether the caller must measure this turn. Processor
        time counts only while other connections wait, because only then do they lose it. Reading the thread's clock
        takes longer than taking a free turn.
        """
        with self._lock:
            had = max(had, self._level - ALLOWANCE) if self._by_use else 0.0
            if self._free:
                self._free -= 1
                self._level = max(self._level, had)
                return had, False
            sleep = threading.Lock()
            sleep.acquire()
            heapq.heappush(self._waiting, (had, next(self._arrivals), sleep))
        sleep.acquire()
        return had, self._by_use

    def give_back(self, newcomer_had: float = 0.0) -> None:
        """Return the turn. `newcomer_had` is the time in seconds that a new connection has used in its first turn."""
        with self._lock:
            self._level += newcomer_had / (len(self._waiting) + 1)
            if self._waiting:
                had, _, sleep = heapq.heappop(self._waiting)
                self._level = max(self._level, had)
                sleep.release()
            else:
                self._free += 1


class Turn:
    """Represent one connection's share of the turns. Only the thread that serves the connection may use it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._taken = False
        self._had = turns.level()  # The unit is seconds of processor time, as `take` counts them.
        self._began: float | None = None  # It is None while no time is measured.
        self._is_new = True

    def __enter__(self) -> None:
        self._had, counts = self._turns.take(self._had)
        self._began = time.thread_time() if counts else None
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self._taken = False
        seconds = 0.0 if self._began is None else time.thread_time() - self._began
        self._had += seconds
        self._turns.give_back(seconds if self._is_new else 0.0)
        self._is_new = False

    def pass_on(self) -> None:
        """Give up the turn of this connection, if it has one, and wait for the next turn."""
        with self.let_others():
            pass

    @contextlib.contextmanager
    def let_others(self) -> Iterator[None]:
        """Give up the turn of this connection, if it has one, for the duration of the block."""
        if not self._taken:
            yield
            return
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


_TURN = object()


def with_turn(ctx: Context, turn: Turn) -> Context:
    """Return a context that carries the turn, for calls by the thread that has the turn."""
    return with_value(ctx, _TURN, turn)


def let_others(ctx: Context | None) -> contextlib.AbstractContextManager[None]:
    """Give up the turn that ctx carries, if any, for the duration of the block.

    Use this around calls that may block.
    """
    turn: Turn | None = None if ctx is None else ctx.value(_TURN)
    return contextlib.nullcontext() if turn is None else turn.let_others()
