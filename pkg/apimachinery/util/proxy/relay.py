"""Bytes between two connections, in both directions, by one thread.

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

# A larger buffer costs more than the second call it saves: it comes from the system each time.
_READ_SIZE = 1 << 16
# So many bytes may wait to be sent to one side before no more are taken from the other.
MAX_WAITING_BYTES = 1 << 18
# Pieces that wait and are smaller are put together: each by itself costs more than its bytes.
_SMALL = 4 << 10
# So many bytes may wait for the backend to be drained. What comes beyond does not wait.
MAX_HELD_BYTES = 1 << 10
# The backend counts as drained when nothing comes from it for so long: its kernel may have more to send, and has to
# hear first that there is room again, which takes some milliseconds on a busy machine. A ping comes every few seconds.
_QUIET_MILLISECONDS = 50
# So many bytes are read from one end before the other has its turn.
_TURN = 1 << 20
# After so many small pieces from one side alone, each so soon after the one before, in seconds, there is more to come:
# the kernel gathers so many bytes of it, for so many milliseconds at most, before it wakes the relay. Runtimes write in
# pieces of 4 KiB and less, and each one handed on costs as much as a large one. Where both sides speak in turn nothing
# waits.
_STREAK = 16
_SOON = 0.005
_GATHER = 64 << 10
_GATHER_MILLISECONDS = 2
# When no more bytes than these have gathered in that time, a gathering saves nothing, and so ends.
_LITTLE = 8 << 10
# Stands for no event but that the other side is gone, which every poll tells.
_NEWS = 1 << 16
# How long, in seconds, nothing may move after one direction has ended. A client that has yet to take what the backend
# said before its end may pause for longer.
LINGER = 10.0
# Records of TLS that are read in one turn, or frames that are taken apart: half a millisecond, if they are of one byte.
PIECES_IN_TURN = 64
_COUNT = struct.Struct("i")
# DIVERGES (platform): of all connections that are relayed, only a few are read from or taken apart at the same time.
# Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go, (*UpgradeAwareHandler).tryUpgrade: each connection has
# goroutines of its own that read whenever bytes have come.
# Why: Python runs one thread at a time; messages of one byte on thirty slow connections would keep every other thread,
# such as the sync loop, waiting for hundreds of milliseconds.
# Test: relay_test.py:test_many_small_records_leave_the_turn_to_others
TURNS = Turns(by_use=True)


class Conn(Protocol):
    """Of pkg.golang.http.Conn what a relay takes. What cannot be done now raises WouldWait.

    TLS gives one record with each `recv` of that size and reads no further, so a poll tells whether there is more.
    """

    def recv(self, n: int) -> bytes: ...

    def send(self, data: bytes | memoryview) -> int: ...

    def fileno(self) -> int: ...

    def setblocking(self, blocking: bool) -> None: ...

    def set_low_water(self, count: int) -> None: ...

    def shutdown_write(self) -> None: ...


class End:
    """One of a relay's two connections. Used by the relay's thread alone."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self.read_ended = False
        # Nothing can be sent any more, be it that the connection broke or that it is not wanted. What the other side
        # said before it went may still be there to be read.
        self.broken = False
        self.waiting = 0  # bytes that `write` was given and the connection has not taken
        self.taken = 0  # bytes that it has taken since the beginning
        self._arrived = 0  # of these, how many were with the other side when somebody asked last
        self._queue: deque[memoryview] = deque()
        self._small = bytearray()  # what waits behind the queue, in small pieces
        self._behind = False  # answers to what came from this end wait for it to take what was sent before
        self._ending = False
        self._leaving = False  # to be abandoned once nothing waits any more
        self.writes_ended = False  # the other side has been told that nothing more comes
        self._hung_up = False  # the poll has told that both directions have ended, and would tell it all the time
        self.gathering = False
        self._streak, self._last_read = 0, 0.0  # how many small pieces came soon after each other, and when the last
        self._turn = Turn(TURNS)
        self.fd = conn.fileno()
        self._polled = 0  # what the poll waits for at it
        # What reading and sending have to wait for. With TLS that may change places.
        self._to_read, self._to_send = select.POLLIN, select.POLLOUT
        self.on_data: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[], None] = _do_nothing

    def write(self, data: bytes | memoryview) -> None:
        """Send this as soon as it can be; dropped when the connection takes nothing any more."""
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
        """Write what answers to something that was read here: no more is read until it can be sent."""
        self.write(data)
        self._behind = self.waiting >= MAX_WAITING_BYTES

    def end_writes(self) -> None:
        """Tell the other side that nothing more comes, once all has been sent that was written before."""
        self._ending = True
        self.flush()

    def abandon(self) -> None:
        """Neither read from it nor write to it any more."""
        self._end_reads()
        self._stop_writing()

    def abandon_once_sent(self) -> None:
        """The same once all has been sent that was written before.

        Until then it is read: who cannot get rid of what he says may not take anything either.
        """
        self._leaving = True
        self.flush()

    def _end_reads(self) -> None:
        """Nothing more is read, nor waited for: an end that gathers is looked at all the time."""
        self.read_ended = True
        self.gathering = False

    def hang_up(self, *, failed: bool) -> None:
        """Take note that no bytes move any more at the other side, because it failed or because both have ended.

        What the other side said last may not have been read yet, or not all have been taken by the sink.
        """
        if failed or self.broken:
            self._hung_up = True
            self._stop_writing()
        elif self.writes_ended:
            self._hung_up = True
        else:
            # It was cut off here.
            self.abandon()

    def release(self) -> None:
        """Forget the other end: what both hold is freed at once, and not when the garbage is collected."""
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
        """Hand on what there is, as long as the sink can take it."""
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
        """Begin or end to gather by how much was just read."""
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
        """What can be read now, about so much, and whether there may be more."""
        parts: list[bytes] = []
        size, more = 0, True
        while more and size < _READ_SIZE:
            if len(parts) == PIECES_IN_TURN:
                # Small ones take twenty times as much as what is in them, and others may have such ones at hand, too.
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
        """What to wait for at this end, of which the other one is the sink."""
        events = self._to_send if self.has_to_send() else 0
        if self._may_read(sink):
            events |= self._to_read
        return events

    def has_more(self) -> bool:
        """Whether there is something to read, now or in a moment, or the connection has failed."""
        if self.gathering:
            # The kernel reports no data below the low-water mark, so there may be some.
            return True
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(_QUIET_MILLISECONDS))

    def has_to_send(self) -> bool:
        """Bytes, or the end of this direction."""
        return self.waiting > 0 or (self._ending and not self.writes_ended and not self.broken)

    def moved(self) -> bool:
        """Whether something waits still, and the other side has got anything since this was asked last.

        A poll does not report slow progress: the kernel reports that a connection takes more only when a third of its
        send buffer is free, which may be a megabyte.
        """
        before, self._arrived = self._arrived, self.taken - _held_by_kernel(self.fd)
        return self.waiting > 0 and self._arrived > before

    def is_readable(self, events: int) -> bool:
        """Whether it is worth while to read when a poll has told of these."""
        return bool(events & (self._to_read | ~select.POLLOUT))

    def is_gone(self, events: int) -> bool:
        """Whether a poll has told of the end of the connection, and of nothing to read before it."""
        return bool(events & (select.POLLHUP | select.POLLERR)) and not events & self._to_read

    def register(self, poll: select.poll, events: int, *, always: bool) -> None:
        """Wait for these; `always`: without any too, for the news that the other side is gone."""
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
        """How much of it went out; nothing, and broken, if the other side is gone."""
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
    """Bytes between a client and a backend until both have ended, or one is gone.

    The end of one direction is passed on and the other goes on. What a client said before it was gone is passed on too.
    Who wants to change what is passed on puts functions of his own into `on_data` and `on_end` of the two ends.

    DIVERGES (fault of Go): when one direction has ended, the other goes on until it ends too.
    Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go, (*UpgradeAwareHandler).tryUpgrade: both connections are
    closed as soon as one direction has ended.
    Why: bytes that are under way in the other direction are lost.
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
        self.held = bytearray()  # for the backend, once it is drained
        # Set while one side still sends and nobody takes what it sends: when the relay ends, monotonic.
        self._over_by: float | None = None

    def write_once_drained(self, data: bytes) -> None:
        """Send this to the backend once all that came from there was passed on. Dropped if the backend ends before.

        For what the backend may well do without. A backend that is done closes its connection, and its kernel may still
        have megabytes to send. It throws those away when anything comes in then.
        """
        self.held += data
        if len(self.held) > MAX_HELD_BYTES:
            self.write_held()

    def write_held(self) -> None:
        """Send what waits for the backend to be drained now, so that it stays before what is written next."""
        self.backend.write(bytes(self.held))
        self.held.clear()

    def run(self, first: bytes = b"") -> None:
        """Returns when it is over; closing the connections is the caller's. It runs once.

        `first` is what was read from the client before.
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
        """Of what the backend has sent, and it may send more."""
        return not (self.client.waiting or self.backend.read_ended or self.backend.has_more())

    def _over(self) -> bool:
        ends = (self.client, self.backend)
        if self._over_by is not None and time.monotonic() >= self._over_by:
            return True
        if self.client.broken and self.client.read_ended:
            return not self.backend.has_to_send()
        return all(end.read_ended for end in ends) and not any(end.has_to_send() for end in ends)

    def _wait(self, pairs: tuple[tuple[End, End], ...]) -> list[End] | None:
        """Until something can move: the ends to read from. None if nothing did for too long."""
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
        """After the time for a poll: none to read from, or None if what waits does not go on, however slowly."""
        if not (self._lingers() and self._moved()):
            return None
        self._over_by = None
        return []

    def _moved(self) -> bool:
        """Whether one side that has more to take has got anything since this was asked last."""
        moved = [end.moved() for end in (self.client, self.backend)]
        return any(moved)

    def _lingers(self) -> bool:
        """Whether one direction has ended, so that the other may not stand still for long."""
        if self._speaks_to_nobody() or self.client.read_ended:
            return True
        return self.backend.read_ended and not self.client.waiting

    def _speaks_to_nobody(self) -> bool:
        """Whether nobody is left to take what one side still says, however long it goes on.

        Either the backend is gone, or the backend goes on while the client is, or was told that nothing more comes.
        """
        if self.backend.read_ended:
            return self.backend.broken and not self.client.waiting
        return self.client.writes_ended or self.client.broken

    def _limit(self) -> float | None:
        """In milliseconds."""
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
        # Rounded up: a remainder below a millisecond must not become a busy loop.
        return max(self._over_by - now, 0.0) * 1000 + 1


def _held_by_kernel(fd: int) -> int:
    """How many bytes that were sent the other side's kernel has not confirmed; 0 if that is not known."""
    with contextlib.suppress(OSError):
        (count,) = _COUNT.unpack(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_COUNT.size)))
        return int(count)
    return 0


def _ignore(data: bytes) -> None:
    pass


def _do_nothing() -> None:
    pass
