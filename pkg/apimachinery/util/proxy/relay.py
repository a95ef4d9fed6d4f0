"""Relay bytes between two connections in both directions, in one thread.

Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go (UpgradeAwareHandler.tryUpgrade); it calls io.Copy twice
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import struct
import termios
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pkg.golang.http.conn import WouldWait
from pkg.golang.turn import Turn, Turns

# A larger buffer costs more than the second call that it would save, because it is allocated from the system each time.
_READ_SIZE = 1 << 16
# While more bytes than this wait to be sent to one side, the relay does not read from the other.
MAX_WAITING_BYTES = 1 << 18
# Waiting pieces that are smaller than this are joined, because sending each by itself costs more than copying it.
_SMALL = 4 << 10
# At most this many bytes wait until the backend is drained. Beyond this limit they are sent at once.
MAX_HELD_BYTES = 1 << 10
# The backend counts as drained when nothing arrives from it for this time. Its kernel may have more to send, and must
# first learn that there is room again, which takes some milliseconds on a busy machine. A ping arrives every few
# seconds.
_QUIET_MILLISECONDS = 50
# `_TURN` is the number of bytes that are read from one end before it is the other end's turn.
_TURN = 1 << 20
# If _STREAK small pieces arrive from one side alone, each within _SOON seconds of the previous one, more are expected.
# Then the kernel gathers up to _GATHER bytes, for at most _GATHER_MILLISECONDS, before it wakes the relay. Runtimes
# write in pieces of 4 KiB and less, and forwarding a small piece costs as much as forwarding a large one. If both sides
# send in turn, nothing is delayed.
_STREAK = 16
_SOON = 0.005
_GATHER = 64 << 10
_GATHER_MILLISECONDS = 2
# If no more bytes than this were gathered in that time, gathering has no benefit, and ends.
_LITTLE = 8 << 10
# This mask selects no event except the other side's hang-up, which every poll reports.
_NEWS = 1 << 16
# `LINGER` is the time, in seconds, that the relay waits without any progress after one direction has ended. A client
# that still has to read the backend's last output may pause for longer.
LINGER = 10.0
# `PIECES_IN_TURN` is the number of TLS records that are read in one turn, or of frames that are parsed. With records of
# one byte this takes half a millisecond.
PIECES_IN_TURN = 64
_COUNT = struct.Struct("i")
# DIVERGES (platform): the kubelet reads from or parses only a few of all relayed connections at the same time.
# Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go, (*UpgradeAwareHandler).tryUpgrade: each connection has its own
# goroutines, which read whenever bytes have arrived.
# Why: Python runs one thread at a time. Messages of one byte on thirty slow connections would keep every other thread,
# such as the sync loop, waiting for hundreds of milliseconds.
# Test: relay_test.py:test_many_small_records_leave_the_turn_to_others
TURNS = Turns(by_use=True)


class Conn(Protocol):
    """Define what a relay needs from pkg.golang.http.Conn; calls that would block raise WouldWait.

    A TLS connection returns one record for each `recv` of that size and does not read ahead, so a poll reports whether
    there is more.
    """

    def recv(self, n: int) -> bytes: ...

    def send(self, data: bytes | memoryview) -> int: ...

    def fileno(self) -> int: ...

    def setblocking(self, blocking: bool) -> None: ...

    def set_low_water(self, count: int) -> None: ...

    def shutdown_write(self) -> None: ...


class End:
    """Represent one of a relay's two connections; only the relay's thread uses it."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self.read_ended = False
        # If True, nothing can be sent any more, because the connection broke or was abandoned. The last data of the
        # other side may still be unread.
        self.broken = False
        self.waiting = 0  # `waiting` is the number of bytes that `write` has accepted and that have not been sent yet.
        self.taken = 0  # `taken` is the number of bytes that have been sent since the start.
        # `_arrived` is the number of bytes, out of `taken`, that had reached the other side at the last check.
        self._arrived = 0
        self._queue: deque[memoryview] = deque()
        self._small = bytearray()  # These small pieces wait behind the queue.
        # If True, responses to data from this end wait until the earlier data to this end was sent.
        self._behind = False
        self._ending = False
        self._leaving = False  # If True, the end is abandoned once nothing waits any more.
        self.writes_ended = False  # If True, this direction to the other side is closed.
        # If True, poll has reported that both directions have ended. It would repeat the report each time.
        self._hung_up = False
        self.gathering = False
        # `_streak` is the number of small pieces in quick succession, and `_last_read` is the time of the last one.
        self._streak, self._last_read = 0, 0.0
        self._turn = Turn(TURNS)
        self.fd = conn.fileno()
        self._polled = 0  # `_polled` holds the events for which poll currently waits at this end.
        # Reading and sending wait for these events. With TLS either may wait for the other's event.
        self._to_read, self._to_send = select.POLLIN, select.POLLOUT
        self.on_data: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[], None] = _do_nothing

    def write(self, data: bytes | memoryview) -> None:
        """Send the data as soon as possible; drop it if the connection no longer accepts data."""
        if self.broken or self._ending:
            return
        view = memoryview(data)
        if not self.waiting:
            view = view[self._send(view) :]
        if not view or self.broken:
            return
        self.waiting += len(view)
        if len(view) < _SMALL:
            self._small += view
        else:
            self._gather_small()
            self._queue.append(view)

    def _gather_small(self) -> None:
        if self._small:
            self._queue.append(memoryview(self._small))
            self._small = bytearray()

    def answer(self, data: bytes) -> None:
        """Write a response to data that was read here, and stop reading until the response can be sent."""
        self.write(data)
        self._behind = self.waiting >= MAX_WAITING_BYTES

    def end_writes(self) -> None:
        """Close this direction to the other side once all earlier data was sent."""
        self._ending = True
        self.flush()

    def abandon(self) -> None:
        """Stop both reading and writing."""
        self._end_reads()
        self._stop_writing()

    def abandon_once_sent(self) -> None:
        """Stop both reading and writing once all earlier data was sent.

        Until then the end is still read, because a peer that cannot send may not receive either.
        """
        self._leaving = True
        self.flush()

    def _end_reads(self) -> None:
        """Stop reading and waiting for data; an end that gathers would be polled all the time."""
        self.read_ended = True
        self.gathering = False

    def hang_up(self, *, failed: bool) -> None:
        """Record that no more bytes can pass at the other side, because it failed or both directions have ended.

        The other side's last data may be unread, or the sink may not have accepted all of it.
        """
        if failed or self.broken:
            self._hung_up = True
            self._stop_writing()
        elif self.writes_ended:
            self._hung_up = True
        else:
            # The connection was cut off.
            self.abandon()

    def release(self) -> None:
        """Drop the references to the other end, so that both are freed at once and not by the garbage collector."""
        self.on_data, self.on_end = _ignore, _do_nothing

    def _stop_writing(self) -> None:
        self.broken = True
        self._queue.clear()
        self._small = bytearray()
        self.waiting = 0

    def flush(self) -> None:
        while self.waiting and not self.broken:
            if not self._queue:
                self._gather_small()
            view = self._queue[0]
            sent = self._send(view)
            self.waiting -= sent
            if sent < len(view):
                if not self.broken:
                    self._queue[0] = view[sent:]
                break
            self._queue.popleft()
        if not self.waiting and self._leaving:
            self.abandon()
        elif not self.waiting and self.has_to_send():
            self._end_writes()

    def _end_writes(self) -> None:
        try:
            self.conn.shutdown_write()
        except WouldWait as err:
            self._to_send = err.event
            return
        except OSError:
            self._stop_writing()
        self.writes_ended = True

    def read(self, sink: End) -> None:
        """Forward the available data as long as the sink can accept it."""
        if self.read_ended:
            return
        total = 0
        while total < _TURN and self._may_read(sink):
            with self._turn:
                data, more = self._take()
            total += len(data)
            if data:
                self.on_data(data)
            if not more:
                break
        if total:
            sink._gather_no_more()
        if self.read_ended:
            self.on_end()
        else:
            self._pace(total)

    def _may_read(self, sink: End) -> bool:
        self._behind = self._behind and self.waiting >= MAX_WAITING_BYTES
        return not (self.read_ended or self._behind) and sink.waiting < MAX_WAITING_BYTES

    def _pace(self, total: int) -> None:
        """Start or stop gathering, depending on how much was just read."""
        if self.gathering:
            if total <= _LITTLE:
                self._gather_no_more()
            return
        now = time.monotonic()
        is_more = total < _GATHER and now - self._last_read < _SOON
        self._streak = self._streak + 1 if is_more else 0
        self._last_read = now
        if self._streak >= _STREAK:
            self.gathering = True
            self.conn.set_low_water(_GATHER)

    def _gather_no_more(self) -> None:
        self._streak = 0
        if self.gathering:
            self.gathering = False
            self.conn.set_low_water(1)

    def _take(self) -> tuple[bytes, bool]:
        """Return the data that can be read now, up to about _READ_SIZE bytes, and whether there may be more."""
        parts: list[bytes] = []
        size, more = 0, True
        while more and size < _READ_SIZE:
            if len(parts) == PIECES_IN_TURN:
                # Small pieces take twenty times as long as their contents need, and other connections may have small
                # pieces too.
                parts = [b"".join(parts)]
                self._turn.pass_on()
            try:
                data = self.conn.recv(_READ_SIZE)
                self._to_read = select.POLLIN
            except WouldWait as err:
                self._to_read = err.event
                more = False
                break
            except OSError:
                self.abandon()
                data = b""
            if not data:
                self._end_reads()
                more = False
            parts.append(data)
            size += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts), more

    def events(self, sink: End) -> int:
        """Return the events to wait for at this end; `sink` is the other end."""
        events = self._to_send if self.has_to_send() else 0
        if self._may_read(sink):
            events |= self._to_read
        return events

    def has_more(self) -> bool:
        """Report whether data is available, now or in a moment, or the connection has failed."""
        if self.gathering:
            # The kernel reports no data below the low-water mark, so there may be some.
            return True
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(_QUIET_MILLISECONDS))

    def has_to_send(self) -> bool:
        """Report whether bytes, or the end of this direction, wait to be sent."""
        return self.waiting > 0 or (self._ending and not self.writes_ended and not self.broken)

    def moved(self) -> bool:
        """Report whether data still waits and the other side has received some since the last call.

        A poll does not report slow progress: the kernel reports a connection as writable only when a third of its send
        buffer is free, which may be a megabyte.
        """
        before, self._arrived = self._arrived, self.taken - _held_by_kernel(self.fd)
        return self.waiting > 0 and self._arrived > before

    def is_readable(self, events: int) -> bool:
        """Report whether a read is worthwhile after poll has reported these events."""
        return bool(events & (self._to_read | ~select.POLLOUT))

    def is_gone(self, events: int) -> bool:
        """Report whether poll has reported the end of the connection without unread data before it."""
        return bool(events & (select.POLLHUP | select.POLLERR)) and not events & self._to_read

    def register(self, poll: select.poll, events: int, *, always: bool) -> None:
        """Wait for these events.

        With `always`, wait for the hang-up of the other side even if there are no events.
        """
        no_news = self._hung_up or (self.broken and self.read_ended)
        wanted = events if events or not always or no_news else _NEWS
        if wanted == self._polled:
            return
        self._polled = wanted
        if wanted:
            poll.register(self.fd, wanted & ~_NEWS)
        else:
            poll.unregister(self.fd)

    def _send(self, view: memoryview) -> int:
        """Return how many bytes were sent; if the other side is gone, return 0 and mark the end as broken."""
        sent = 0
        try:
            while sent < len(view):
                sent += self.conn.send(view[sent:])
                self._to_send = select.POLLOUT
        except WouldWait as err:
            self._to_send = err.event
        except OSError:
            self._stop_writing()
        self.taken += sent
        return sent


class Relay:
    """Relay bytes between a client and a backend until both have ended or one is gone.

    The end of one direction is forwarded, and the other direction continues. The last data of a client that has gone is
    forwarded too. To change the forwarded data, replace the functions `on_data` and `on_end` of the two ends.

    DIVERGES (fault of Go): when one direction of a relayed connection has ended, the other continues until it ends too.
    Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go, (*UpgradeAwareHandler).tryUpgrade: the Go kubelet closes
    both connections as soon as one direction has ended.
    Why: bytes in transit in the other direction would be lost.
    Test: relay_test.py:test_one_direction_ends_and_the_other_goes_on,
    relay_test.py:test_what_the_client_said_last_arrives_although_the_backend_ended_first
    """

    def __init__(
        self, client: Conn, backend: Conn, *, linger: float = LINGER, idle_timeout: float | None = None
    ) -> None:
        self.client, self.backend = End(client), End(backend)
        self.client.on_data, self.client.on_end = self.backend.write, self.backend.end_writes
        self.backend.on_data, self.backend.on_end = self.client.write, self.client.end_writes
        self._poll = select.poll()
        self._linger = linger
        self._idle_timeout = idle_timeout
        self.held = bytearray()  # These bytes are for the backend, once it is drained.
        # `_over_by` is the time (monotonic) at which the relay ends. It is set while one side still sends and the other
        # no longer receives.
        self._over_by: float | None = None

    def write_once_drained(self, data: bytes) -> None:
        """Send this to the backend once all its output was forwarded; drop it if the backend ends before.

        The method is for data that the backend can do without. A backend that is done closes its connection while its
        kernel may still have megabytes to send. The kernel discards them if any data arrives then.
        """
        self.held += data
        if len(self.held) > MAX_HELD_BYTES:
            self.write_held()

    def write_held(self) -> None:
        """Send the data that waits for the backend to be drained, so that it stays in front of the next write."""
        self.backend.write(bytes(self.held))
        self.held.clear()

    def run(self, first: bytes = b"") -> None:
        """Relay until the connection is over; call this only once.

        `first` is data that was already read from the client. The caller must close the connections.
        """
        self.client.conn.setblocking(False)
        self.backend.conn.setblocking(False)
        try:
            self.client.on_data(first)
            self._run()
        finally:
            self.client.release()
            self.backend.release()

    def _run(self) -> None:
        pairs = ((self.client, self.backend), (self.backend, self.client))
        readable = [self.client, self.backend]
        while True:
            for end, other in pairs:
                if end in readable:
                    end.read(other)
                other.flush()
            if self.held and self._all_was_passed_on():
                self.write_held()
            if self._over():
                return
            found = self._wait(pairs)
            if found is None:
                return
            readable = found

    def _all_was_passed_on(self) -> bool:
        """Report whether all data from the backend was forwarded, and the backend may send more."""
        return not (self.client.waiting or self.backend.read_ended or self.backend.has_more())

    def _over(self) -> bool:
        ends = (self.client, self.backend)
        if self._over_by is not None and time.monotonic() >= self._over_by:
            return True
        if self.client.broken and self.client.read_ended:
            return not self.backend.has_to_send()
        return all(end.read_ended for end in ends) and not any(end.has_to_send() for end in ends)

    def _wait(self, pairs: tuple[tuple[End, End], ...]) -> list[End] | None:
        """Wait until a connection is ready, and return the ends to read from, or None after the time limit."""
        for end, other in pairs:
            end.register(self._poll, end.events(other), always=end is self.client)
        gathering = [end for end, _ in pairs if end.gathering]
        limit = self._limit()
        found = self._poll.poll(_GATHER_MILLISECONDS if gathering else limit)
        if not found:
            return gathering or self._go_on_slowly()
        readable = []
        for fd, events in found:
            end = self.client if fd == self.client.fd else self.backend
            if end is self.client and end.is_gone(events):
                end.hang_up(failed=bool(events & select.POLLERR))
            elif end.is_readable(events):
                readable.append(end)
        return readable

    def _go_on_slowly(self) -> list[End] | None:
        """Return no ends to read from, or None if the waiting data has made no progress, however slow.

        The caller calls this after a poll has timed out.
        """
        if not (self._lingers() and self._moved()):
            return None
        self._over_by = None
        return []

    def _moved(self) -> bool:
        """Report whether a side that has more to receive has received something since the last call."""
        moved = [end.moved() for end in (self.client, self.backend)]
        return any(moved)

    def _lingers(self) -> bool:
        """Report whether one direction has ended, so that the other must not stall for long."""
        if self._speaks_to_nobody() or self.client.read_ended:
            return True
        return self.backend.read_ended and not self.client.waiting

    def _speaks_to_nobody(self) -> bool:
        """Report whether one side may still send although nothing can receive its data.

        Either the backend is gone, or the backend continues after the client has gone or the direction to the client
        was closed.
        """
        if self.backend.read_ended:
            return self.backend.broken and not self.client.waiting
        return self.client.writes_ended or self.client.broken

    def _limit(self) -> float | None:
        """Return the time limit for the next poll, in milliseconds, or None for no limit."""
        if not self._lingers():
            self._over_by = None
            return None if self._idle_timeout is None else self._idle_timeout * 1000
        moved = self._moved()
        if not self._speaks_to_nobody():
            self._over_by = None
            return self._linger * 1000
        now = time.monotonic()
        if self._over_by is None or moved:
            self._over_by = now + self._linger
        # The value is rounded up, because a remainder below a millisecond would cause a busy loop.
        return max(self._over_by - now, 0.0) * 1000 + 1


def _held_by_kernel(fd: int) -> int:
    """Return how many sent bytes the other side's kernel has not acknowledged, or 0 if that is unknown."""
    with contextlib.suppress(OSError):
        (count,) = _COUNT.unpack(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_COUNT.size)))
        return int(count)
    return 0


def _ignore(data: bytes) -> None:
    pass


def _do_nothing() -> None:
    pass
