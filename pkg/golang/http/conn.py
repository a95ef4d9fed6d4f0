"""A connection's bytes, over TCP or a unix socket; tlsconn.py has the one over TLS.

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
    """A connection does not block, and what was asked of it has to wait for this event of a poll.

    It need not be the usual one: TLS may have to answer before it reads on, and to read before it sends.
    """

    def __init__(self, event: int) -> None:
        super().__init__("would block")
        self.event = event


class Conn(Protocol):
    """One side of a connection. One thread uses it at a time; only `cut` may come from another one.

    When it does not block, what cannot be done now raises WouldWait. Other failures are OSErrors.
    """

    def recv(self, n: int) -> bytes:
        """At most n bytes, b"" when the other side has ended its direction."""
        ...

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the data; returns how many bytes. What could not be sent now has to come first the next time."""
        ...

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it, waiting even if the connection does not block."""
        ...

    def fileno(self) -> int: ...

    def setblocking(self, blocking: bool) -> None: ...

    def settimeout(self, seconds: float | None) -> None:
        """How long each operation may take; None for ever. Then TimeoutError."""
        ...

    def set_low_water(self, count: int) -> None:
        """A poll shall tell of data only once so many bytes have come, or no more can come."""
        ...

    def set_deadline(self, when: float | None) -> None:
        """In time.monotonic() seconds: after it every operation that would wait raises TimeoutError."""
        ...

    def shutdown_write(self) -> None:
        """Tell the other side that no more comes; it may go on sending."""
        ...

    def pending(self) -> bytes:
        """Takes what `recv` would return although the descriptor may not be readable: a poll would sleep on it."""
        ...

    def close(self) -> None: ...

    def cut(self) -> None:
        """End both directions at once, from any thread; who uses the connection sees its end and closes it."""
        ...


class WaitingConn:
    """What connections have in common: a descriptor that never blocks, and waiting for it with time limits."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        # Makes the context in which the connection waits for the other side.
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
        """Until the descriptor is ready. Raises TimeoutError."""
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
        """How long to wait, in milliseconds."""
        limits = [] if self._timeout is None else [self._timeout]
        if self._deadline is not None:
            limits.append(self._deadline - time.monotonic())
        if not limits:
            return None
        if (least := min(limits)) <= 0:
            raise TimeoutError("i/o timeout")
        # Rounded up: a remainder below a millisecond must not become a busy loop.
        return least * 1000 + 1


class PlainConn(WaitingConn):
    """A connection without TLS."""

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
    """Let the other side read the last answer before the connection ends, although it is still sending."""
    until = time.monotonic() + seconds
    # Whatever happens, the connection ends right after.
    with contextlib.suppress(OSError):
        # Before the end is said, for with TLS that may have to wait.
        conn.set_deadline(until)
        conn.shutdown_write()
        drain(conn, until, meanwhile)


def drain(conn: Conn, until: float, meanwhile: Meanwhile = contextlib.nullcontext) -> None:
    """Read and drop until the other side ends, or until `until` (time.monotonic() seconds). Raises OSError.

    `meanwhile` is entered after each piece, for others to have their turn.
    """
    conn.set_deadline(until)
    # The deadline ends only a call that waits. If the other side sends as fast as this thread reads, no call waits.
    while time.monotonic() < until and conn.recv(_CHUNK):
        with meanwhile():
            pass
