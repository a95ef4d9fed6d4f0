"""Turns, for threads of which only a few are to work at the same time: those of clients that nobody knows yet, those
that take WebSockets or logs apart, those that run probes, and those that count the files of volumes.

This file has no Go counterpart: goroutines run side by side. Here, when a client closes two hundred connections at
once, as many threads would want the interpreter at the same time, and all else in the process, the sync loop for one,
would wait for it for a quarter of a second. So those threads work a few at a time, and the others sleep.
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
# Seconds of processor time that a connection keeps as an advantage after a pause: a few short turns take as much. If
# hundreds of connections pause at the same time, a new connection waits until each of them has used its advantage.
ALLOWANCE = 0.0005


class Turns:
    """Turns that many threads share, of which there are so many. Thread-safe.

    Each goes to the thread that has waited longest. Of a threading.Semaphore the thread that has just given its turn
    back takes the turn again before the one that waits is awake: four clients that always have more to say would keep
    everybody else waiting.

    `by_use`: those go first whose connections have had least. Then who says little does not wait for all who always
    have more to say, however many they are. Who comes for the first time counts as the one with the last turn, and what
    he has had in his first one counts, by its part, as had by all: else there could always be somebody new to go first.
    Hundreds may come together for the first time, each with much to do, so that a turn is to be short: half a
    millisecond. Who has more to do passes it on.
    """

    def __init__(self, count: int = MAX_TURNS, *, by_use: bool = False) -> None:
        self._by_use = by_use
        self._lock = threading.Lock()
        # Guarded by _lock. What the waiting threads sleep on, each a lock that is released with a turn, in a heap: by
        # what their connections have had, and then as they came. While there are such threads, no turn is free.
        self._waiting: list[tuple[float, int, threading.Lock]] = []
        self._arrivals = itertools.count()
        self._free = count
        self._level = 0.0  # what the connection with the last turn had had before it, or one with an earlier turn

    def level(self) -> float:
        """How many seconds a new connection counts as having had."""
        with self._lock:
            return self._level

    def take(self, had: float) -> tuple[float, bool]:
        """For a connection that has had so many seconds; returns as how many they count, and whether to count more.

        Processor time counts only while other connections wait, because only then do they lose it. To read the thread's
        clock takes longer than to take a free turn.
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
        """`newcomer_had`: how many seconds a connection has had in its first turn."""
        with self._lock:
            self._level += newcomer_had / (len(self._waiting) + 1)
            if self._waiting:
                had, _, sleep = heapq.heappop(self._waiting)
                self._level = max(self._level, had)
                sleep.release()
            else:
                self._free += 1


class Turn:
    """What one connection has of the turns. For the thread that serves the connection."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._taken = False
        self._had = turns.level()  # seconds of the processor, as `take` counts them
        self._began: float | None = None  # None while it is not counted
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


_TURN = object()


def with_turn(ctx: Context, turn: Turn) -> Context:
    """A context for what is done under the turn, by the thread that has it."""
    return with_value(ctx, _TURN, turn)


def let_others(ctx: Context | None) -> contextlib.AbstractContextManager[None]:
    """For what may wait: let others have their turn meanwhile, if ctx has one."""
    turn: Turn | None = None if ctx is None else ctx.value(_TURN)
    return contextlib.nullcontext() if turn is None else turn.let_others()
