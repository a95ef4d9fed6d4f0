"""Notice clients that disconnect while their requests are being served.

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
    """Call back when the peer of a socket has closed. One thread watches all sockets with epoll."""

    def __init__(self, name: str) -> None:
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], object]] = {}  # _lock guards this dict.
        self._wake_read, self._wake_write = socket.socketpair()
        self._epoll.register(self._wake_read, select.EPOLLIN)
        try:
            self._thread = golang.go(self._run, name=name)
        except BaseException:
            self._close()
            raise

    def add(self, fd: int, callback: Callable[[], object]) -> None:
        """Call `callback` once, in the thread of this object, when the peer has closed. `callback` must not block.

        Raise OSError if the system cannot watch the descriptor; then nothing is registered.
        """
        with self._lock:
            # The watching thread waits for the lock before it reads `_callbacks`.
            self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLONESHOT)
            self._callbacks[fd] = callback

    def remove(self, fd: int) -> None:
        """Stop watching the descriptor. Call this before closing it. An unknown descriptor is ignored."""
        with self._lock:
            if self._callbacks.pop(fd, None) is not None:
                self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
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
                with contain("Failed to cancel the request of a client that has disconnected"):
                    self._call_back(fd)

    def _call_back(self, fd: int) -> None:
        with self._lock:
            callback = self._callbacks.get(fd)
            # Since the event, the descriptor may have been reused for another socket whose peer is still connected.
            gone = callback is not None and _has_gone(fd)
        if callback is not None and gone:
            callback()


def _has_gone(fd: int) -> bool:
    waiter = select.poll()
    waiter.register(fd, select.POLLRDHUP)
    return bool(waiter.poll(0))
