"""A lock that many threads hold for a moment each.

Go: sync.Mutex, in its normal mode
"""

from __future__ import annotations

import threading
from collections import deque


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
        # What the waiting threads sleep on, each a lock that is held until its thread is to look again.
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            self._wait()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._waiting:
            self._wake()

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
                self._waiting.append(sleep)
                if self._lock.acquire(False):
                    return
                sleep.acquire()
        except BaseException:
            # A signal handler raised. Somebody may have woken this thread, and no other.
            self._wake()
            raise
        finally:
            try:
                self._waiting.remove(sleep)
            except ValueError:
                pass  # Woken without need. The next thread in line is woken when this one lets go.

    def _wake(self) -> None:
        """Have the thread that has waited longest try again."""
        try:
            self._waiting.popleft().release()
        except IndexError:
            pass  # Another thread has woken it.
