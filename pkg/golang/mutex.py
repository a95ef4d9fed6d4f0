"""Provide a lock for many threads that each hold it for a moment.

Go: sync.Mutex, in its normal mode
"""

from __future__ import annotations

import threading
from collections import OrderedDict


class Mutex:
    """Guard a block of code as a context manager; a Mutex is not reentrant.

    A thread that holds a Mutex must not wait for anything.

    A threading.Lock passes directly to a woken thread, which then still waits for the interpreter, behind all other
    threads that want to run. Each of these threads that needs the lock also queues for the lock, so the queue never
    shrinks: hundreds of threads wait for one another while the processor is idle. A Mutex wakes a waiting thread
    without passing ownership. The thread takes the Mutex once the thread runs, and other threads may have taken the
    Mutex in between. So the owner of a Mutex is nearly always a running thread.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each waiting thread sleeps on a lock of its own, which is held until the thread should try again. The locks
        # are keys of a dict and not elements of a deque: a deque compares the removed element with all elements before
        # it, and each comparison needs more of the stack.
        self._waiting: OrderedDict[threading.Lock, None] = OrderedDict()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            self._wait()

    def __exit__(self, *_: object) -> None:
        """Release the Mutex, and wake the thread that has waited longest so that it tries again.

        This method calls no Python function for the wake-up: if the stack had no room for the call, no thread would be
        woken.
        """
        self._lock.release()
        try:
            if self._waiting:
                self._waiting.popitem(last=False)[0].release()
        except KeyError:
            pass  # Another thread has already woken the waiting thread.

    def locked(self) -> bool:
        """Report whether some thread holds the Mutex."""
        return self._lock.locked()

    def _wait(self) -> None:
        """Wait for the Mutex and take it.

        After taking it, call nothing that needs more of the stack, because such a call could fail.
        """
        sleep = threading.Lock()
        sleep.acquire()
        try:
            while True:
                # The thread joins the queue before it tries: a release after a failed try then finds this thread.
                self._waiting[sleep] = None
                if self._lock.acquire(False):
                    return
                sleep.acquire()
        except BaseException:
            # A signal handler raised an exception. Another thread may have woken this thread, which must then wake the
            # next one in the queue. If the Mutex is taken again by now, its owner wakes the next thread on release.
            if self._lock.acquire(False):
                self.__exit__()
            raise
        finally:
            # The key may still be present, if this thread got the Mutex without being woken. This thread wakes the next
            # one in the queue when it releases the Mutex.
            self._waiting.pop(sleep, None)
