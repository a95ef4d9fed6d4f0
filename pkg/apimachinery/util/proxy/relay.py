"""Bytes between two connections, in both directions, by one thread.

Go: the two io.Copy of k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from typing import Protocol

_READ_SIZE = 1 << 16
# So many bytes may wait to be sent to one side before no more are taken from the other.
_HIGH_WATER = 1 << 18
# How often one end is read from before the other has its turn.
_TURNS = 16
# How long, in seconds, nothing may move after one direction has ended.
LINGER = 10.0


class Conn(Protocol):
    """Of pkg.golang.http.Conn what a relay takes. What cannot be done now raises BlockingIOError.

    TLS gives one record with each `recv` of that size and reads no further, so a poll tells whether there is more.
    """

    def recv(self, n: int) -> bytes: ...

    def send(self, data: bytes | memoryview) -> int: ...

    def fileno(self) -> int: ...

    def setblocking(self, blocking: bool) -> None: ...

    def shutdown_write(self) -> None: ...


class End:
    """One of a relay's two connections. Used by the relay's thread alone."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self.read_ended = False
        # Nothing can be sent any more, be it that the connection broke or that it is not wanted.
        self.broken = False
        self.waiting = 0  # bytes that `write` was given and the connection has not taken
        self._queue: deque[memoryview] = deque()
        self._ending = self._writes_ended = False
        self.on_data: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[], None] = _do_nothing

    def write(self, data: bytes | memoryview) -> None:
        """Send this as soon as it can be; dropped when the connection takes nothing any more."""
        if self.broken or self._ending:
            return
        view = memoryview(data)
        if not self._queue:
            view = view[self._send(view) :]
        if view and not self.broken:
            self._queue.append(view)
            self.waiting += len(view)

    def end_writes(self) -> None:
        """Tell the other side that nothing more comes, once all has been sent that was written before."""
        self._ending = True
        self.flush()

    def abandon(self) -> None:
        """Neither read from it nor write to it any more."""
        self.read_ended = self.broken = True
        self._queue.clear()
        self.waiting = 0

    def flush(self) -> None:
        while self._queue and not self.broken:
            view = self._queue[0]
            sent = self._send(view)
            self.waiting -= sent
            if sent < len(view):
                if not self.broken:
                    self._queue[0] = view[sent:]
                break
            self._queue.popleft()
        if self._ending and not self._queue and not self._writes_ended and not self.broken:
            self._writes_ended = True
            try:
                self.conn.shutdown_write()
            except OSError:
                self.abandon()

    def read(self, sink: End) -> None:
        """Hand on what there is, as long as the sink can take it."""
        for _ in range(_TURNS):
            if self.read_ended or sink.waiting >= _HIGH_WATER:
                return
            try:
                data = self.conn.recv(_READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                self.abandon()
                data = b""
            if not data:
                self.read_ended = True
                self.on_end()
                return
            self.on_data(data)
            if len(data) < _READ_SIZE:
                return

    def _send(self, view: memoryview) -> int:
        """How much of it went out; nothing, and broken, if the other side is gone."""
        sent = 0
        try:
            while sent < len(view):
                sent += self.conn.send(view[sent:])
        except BlockingIOError:
            pass
        except OSError:
            self.abandon()
        return sent


class Relay:
    """Bytes between a client and a backend until both have ended, or one is gone.

    The end of one direction is passed on and the other goes on. Who wants to change what is passed on puts functions
    of its own into `on_data` and `on_end` of the two ends.

    DIVERGES: in Go both directions end as soon as one has, and what is under way in the other is lost.
    """

    def __init__(
        self, client: Conn, backend: Conn, *, linger: float = LINGER, idle_timeout: float | None = None
    ) -> None:
        self.client, self.backend = End(client), End(backend)
        self.client.on_data, self.client.on_end = self.backend.write, self.backend.end_writes
        self.backend.on_data, self.backend.on_end = self.client.write, self.client.end_writes
        self._linger = linger
        self._idle_timeout = idle_timeout

    def run(self) -> None:
        """Returns when it is over; closing the connections is the caller's."""
        self.client.conn.setblocking(False)
        self.backend.conn.setblocking(False)
        pairs = ((self.client, self.backend), (self.backend, self.client))
        readable = [self.client, self.backend]
        while True:
            for end, other in pairs:
                if end in readable:
                    end.read(other)
                other.flush()
            if self._over():
                return
            found = self._wait(pairs)
            if found is None:
                return
            readable = found

    def _over(self) -> bool:
        ends = (self.client, self.backend)
        if self.client.broken:
            return True
        return all(end.read_ended for end in ends) and not any(end.waiting for end in ends)

    def _wait(self, pairs: tuple[tuple[End, End], ...]) -> list[End] | None:
        """Until something can move: the ends to read from. None if nothing did for too long."""
        poll = select.poll()
        by_fd: dict[int, End] = {}
        for end, other in pairs:
            if end.broken and end.read_ended:
                continue
            events = select.POLLOUT if end.waiting else 0
            if not end.read_ended and other.waiting < _HIGH_WATER:
                events |= select.POLLIN
            # Without any event too, for the news that the other side is gone. A backend's says nothing new.
            if events or end is self.client:
                by_fd[end.conn.fileno()] = end
                poll.register(end.conn.fileno(), events)
        found = poll.poll(self._limit())
        if not found:
            return None
        readable = []
        for fd, events in found:
            end = by_fd[fd]
            if end is self.client and events & (select.POLLHUP | select.POLLERR) and not events & select.POLLIN:
                end.abandon()
            elif events & ~select.POLLOUT:
                readable.append(end)
        return readable

    def _limit(self) -> float | None:
        """In milliseconds."""
        if self.client.read_ended or self.backend.read_ended:
            return self._linger * 1000
        return None if self._idle_timeout is None else self._idle_timeout * 1000


def _ignore(data: bytes) -> None:
    pass


def _do_nothing() -> None:
    pass
