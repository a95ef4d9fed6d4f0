"""Notices that clients have gone while their requests are still being served.

Go: net/http/server.go (connReader.backgroundRead)
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable

from pkg import golang
from pkg.golang.contain import contain


class HangUps:
    """Calls back once the other end of a socket has closed: one thread for all of them, woken by the system."""

    def __init__(self, name: str) -> None:
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], object]] = {}  # guarded by _lock
        self._wake_read, self._wake_write = socket.socketpair()
        self._epoll.register(self._wake_read, select.EPOLLIN)
        try:
            self._thread = golang.go(self._run, name=name)
        except BaseException:
            self._close()
            raise

    def add(self, fd: int, callback: Callable[[], object]) -> None:
        """Call once, in the thread of this object, when the other end has closed. Must not block.

        Raises OSError when the system has no room for it; then nothing is noted.
        """
        with self._lock:
            # The thread that is woken waits for the lock.
            self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLONESHOT)
            self._callbacks[fd] = callback

    def remove(self, fd: int) -> None:
        """Before the descriptor is closed; nothing happens if it is not there."""
        with self._lock:
            if self._callbacks.pop(fd, None) is not None:
                self._epoll.unregister(fd)

    def close(self) -> None:
        """Returns when the thread has ended."""
        self._wake_write.send(b"x")
        self._thread.join()
        self._close()

    def _close(self) -> None:
        self._epoll.close()
        self._wake_read.close()
        self._wake_write.close()

    def _run(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                if fd == self._wake_read.fileno():
                    return
                with contain("Failed to end what was done for a client that has gone"):
                    self._call_back(fd)

    def _call_back(self, fd: int) -> None:
        with self._lock:
            callback = self._callbacks.get(fd)
            # Since the event, the number may have become that of another socket, which is still there.
            gone = callback is not None and _has_gone(fd)
        if callback is not None and gone:
            callback()


def _has_gone(fd: int) -> bool:
    waiter = select.poll()
    waiter.register(fd, select.POLLRDHUP)
    return bool(waiter.poll(0))
