"""Read and write the bytes of a connection over TCP or a unix socket; tlsconn.py does the same over TLS.

Go: net/net.go (Conn)
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pkg.golang.net import hang_up

_CHUNK = 1 << 16


class WouldWait(BlockingIOError):
    """Signal that a non-blocking operation has to wait for the poll event `event`.

    The event need not be the usual one: TLS may have to write before it can continue to read, and to read before it can
    write.
    """

    def __init__(self, event: int) -> None:
        super().__init__("would block")
        self.event = event


class Conn(Protocol):
    """Define one side of a connection. One thread uses it at a time; only `cut` may be called from another thread.

    On a non-blocking connection, an operation that would wait raises WouldWait. Other failures are OSErrors.
    """

    def recv(self, n: int) -> bytes:
        """Return at most n bytes, or b"" when the peer has ended its direction."""
        ...

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the data and return how many bytes.

        The next call must begin with the data that this call did not send.
        """
        ...

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of the data, and wait until it is sent even on a non-blocking connection."""
        ...

    def fileno(self) -> int: ...

    def setblocking(self, blocking: bool) -> None: ...

    def settimeout(self, seconds: float | None) -> None:
        """Limit the time of each operation (None: no limit). After that time the operation raises TimeoutError."""
        ...

    def set_low_water(self, count: int) -> None:
        """Make a poll report data only once `count` bytes have arrived, or nothing further can arrive."""
        ...

    def set_deadline(self, when: float | None) -> None:
        """Set a deadline in time.monotonic() seconds; after it, every operation that would wait raises TimeoutError."""
        ...

    def shutdown_write(self) -> None:
        """End this side's direction. The peer may continue to send."""
        ...

    def pending(self) -> bytes:
        """Return and remove the data that a poll of the descriptor does not report although `recv` would return it."""
        ...

    def close(self) -> None: ...

    def cut(self) -> None:
        """Shut down both directions at once, from any thread. The connection's user notices the end and closes it."""
        ...


class WaitingConn:
    """Implement what all connections share: a non-blocking descriptor, and waiting for it with time limits."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        # `meanwhile` returns the context manager that is entered while the connection waits for the peer.
        self.meanwhile: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._blocking = True
        self._timeout: float | None = None
        self._deadline: float | None = None

    def fileno(self) -> int:
        return self.sock.fileno()

    def setblocking(self, blocking: bool) -> None:
        self._blocking = blocking
        self._timeout = None

    def settimeout(self, seconds: float | None) -> None:
        self._blocking = True
        self._timeout = seconds

    def set_low_water(self, count: int) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def set_deadline(self, when: float | None) -> None:
        self._deadline = when

    def cut(self) -> None:
        hang_up(self.sock)

    def _wait(self, event: int) -> None:
        """Wait until the descriptor is ready. Raise TimeoutError."""
        waiter = select.poll()
        waiter.register(self.sock, event)
        with self.meanwhile():
            if not waiter.poll(self._limit()):
                raise TimeoutError("i/o timeout")

    def _wait_if_blocking(self, event: int) -> None:
        if not self._blocking:
            raise WouldWait(event)
        self._wait(event)

    def _limit(self) -> float | None:
        """Return how long to wait, in milliseconds."""
        limits = [] if self._timeout is None else [self._timeout]
        if self._deadline is not None:
            limits.append(self._deadline - time.monotonic())
        if not limits:
            return None
        if (least := min(limits)) <= 0:
            raise TimeoutError("i/o timeout")
        # The value is rounded up, because a remainder below one millisecond would cause a busy loop.
        return least * 1000 + 1


class PlainConn(WaitingConn):
    """Run a connection without TLS."""

    def recv(self, n: int) -> bytes:
        while True:
            try:
                return self.sock.recv(n)
            except BlockingIOError:
                self._wait_if_blocking(select.POLLIN)

    def send(self, data: bytes | memoryview) -> int:
        while True:
            try:
                return self.sock.send(data)
            except BlockingIOError:
                self._wait_if_blocking(select.POLLOUT)

    def sendall(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def shutdown_write(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def pending(self) -> bytes:
        return b""

    def close(self) -> None:
        self.sock.close()


Meanwhile = Callable[[], AbstractContextManager[None]]


def linger(conn: Conn, seconds: float, meanwhile: Meanwhile = contextlib.nullcontext) -> None:
    """Give the peer time to read the last response, although it is still sending, before the connection ends."""
    until = time.monotonic() + seconds
    # Failures do not matter, because the connection ends right after.
    with contextlib.suppress(OSError):
        # The deadline comes before the shutdown, because with TLS the shutdown may have to wait.
        conn.set_deadline(until)
        conn.shutdown_write()
        drain(conn, until, meanwhile)


def drain(conn: Conn, until: float, meanwhile: Meanwhile = contextlib.nullcontext) -> None:
    """Read and drop data until the peer ends, or until `until` (time.monotonic() seconds). Raise OSError.

    This function enters `meanwhile` after each piece, so that others get their turn.
    """
    conn.set_deadline(until)
    # The deadline ends only a call that waits. If the peer sends as fast as this thread reads, no call waits.
    while time.monotonic() < until and conn.recv(_CHUNK):
        with meanwhile():
            pass
