"""A lock that many threads hold for a moment each.

Go: sync.Mutex, in its normal mode
"""

from __future__ import annotations

import threading
from collections import OrderedDict


class Mutex:
    """A context manager, not reentrant. A thread that holds a Mutex must not wait for anything.

    A thread that waits for a threading.Lock owns the lock as soon as it is woken, and only then waits for the
    interpreter, in a line with all threads that want to run. Each of these that needs the lock joins the line of the
    lock in turn, which so never gets shorter: hundreds of threads then wait for one another while the processor is
    idle. A thread that waits for a Mutex is woken without owning it. The thread takes the Mutex once the thread runs,
    and others may have taken it before: a Mutex is hardly ever held by a thread that does not run.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What the waiting threads sleep on, each a lock that is held until its thread is to look again. They are keys
        # because a deque compares what it removes with all before it, and each comparison needs more of the stack.
        self._waiting: OrderedDict[threading.Lock, None] = OrderedDict()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            self._wait()

    def __exit__(self, *_: object) -> None:
        """Let it go, and have the thread that has waited longest try again.

        It calls no function of its own for that: where the stack has no room for one, nobody would be woken.
        """
        self._lock.release()
        try:
            if self._waiting:
                self._waiting.popitem(last=False)[0].release()
        except KeyError:
            pass  # Another thread has woken it.

    def locked(self) -> bool:
        """Whether some thread holds it."""
        return self._lock.locked()

    def _wait(self) -> None:
        """Take it when it is free. After that, call nothing that needs more of the stack and could so fail."""
        sleep = threading.Lock()
        sleep.acquire()
        try:
            while True:
                # In line before the look: a release after the look finds this thread.
                self._waiting[sleep] = None
                if self._lock.acquire(False):
                    return
                sleep.acquire()
        except BaseException:
            # A signal handler raised. Another thread may have woken this one, which then has to wake the next in line.
            # If the Mutex is taken by now, its owner does that when it lets go.
            if self._lock.acquire(False):
                self.__exit__()
            raise
        finally:
            # Not there if it was woken without need. The next thread in line is woken when this one lets go.
            self._waiting.pop(sleep, None)
