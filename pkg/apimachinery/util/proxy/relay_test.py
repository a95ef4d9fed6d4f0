"""Test the relay between two connections."""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from framework.waiting import wait_for

from pkg import golang
from pkg.apimachinery.util.proxy import relay as relaylib
from pkg.golang.http.conn import PlainConn, WouldWait
from pkg.golang.turn import MAX_TURNS, Turn

_TIMEOUT = 30.0


@dataclass
class Between:
    """Hold a running relay and the far ends of its two connections."""

    relay: relaylib.Relay
    near: socket.socket
    far: socket.socket
    thread: golang.Thread

    def over(self) -> bool:
        self.thread.join(_TIMEOUT)
        return not self.thread.is_alive()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    here.settimeout(_TIMEOUT)
    return here, there


@pytest.fixture
def between(request: pytest.FixtureRequest) -> Iterator[Between]:
    near, client = tcp_pair()
    far, backend = tcp_pair()
    with near, client, far, backend:
        options = getattr(request, "param", {})
        relay = relaylib.Relay(PlainConn(client), PlainConn(backend), **options)
        yield Between(relay, near, far, thread := golang.go(relay.run, name="relay"))
        near.close()
        far.close()
        thread.join()


def read_all(sock: socket.socket) -> bytes:
    got = bytearray()
    while data := sock.recv(1 << 16):
        got += data
    return bytes(got)


def low_water_marks(end: relaylib.End) -> list[int]:
    """Return a list to which the low-water marks are added that the relay sets from now on."""
    conn, marks = end.conn, list[int]()
    set_low_water = conn.set_low_water

    def record(count: int) -> None:
        marks.append(count)
        set_low_water(count)

    conn.set_low_water = record  # type: ignore[method-assign]
    return marks


class Answering(PlainConn):
    """Send data before each read and at the end of writing.

    TLS does so for a key update that the other side requests, and to close the connection.
    """

    def recv(self, n: int) -> bytes:
        self._say(b"keys")
        return super().recv(n)

    def shutdown_write(self) -> None:
        self._say(b"good-bye")
        super().shutdown_write()

    def _say(self, text: bytes) -> None:
        try:
            self.sock.send(text)
        except BlockingIOError:
            raise WouldWait(select.POLLOUT) from None


class Full:
    """Represent a relay's client connection whose other side has not received the data sent to it."""

    def __init__(self, client: socket.socket) -> None:
        self.conn = Answering(client)
        self.conn.setblocking(False)
        self.sent = 0
        for size in (1 << 16, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.sent += client.send(bytes(size))


def read_exactly(sock: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count and (data := sock.recv(count - len(got))):
        got += data
    return bytes(got)


def test_who_has_to_answer_before_he_reads_waits_until_he_can() -> None:
    """A connection that must send before it can read waits until it can send.

    Otherwise a client that causes responses and does not read them would keep the relay in a busy loop.
    """
    (near, client), (far, backend) = socket.socketpair(), socket.socketpair()
    with near, client, far, backend:
        near.settimeout(_TIMEOUT)
        full = Full(client)
        end, sink = relaylib.End(full.conn), relaylib.End(PlainConn(backend))
        end.on_data = sink.write
        near.sendall(b"question")
        end.read(sink)
        assert end.events(sink) == select.POLLOUT
        assert end.is_readable(select.POLLOUT)
        read_exactly(near, full.sent)
        wait_for("the client can send", lambda: bool(select.select([], [client], [], 0)[1]))
        end.read(sink)
        assert far.recv(100) == b"question"
        assert end.events(sink) == select.POLLIN
        assert not end.is_readable(select.POLLOUT)


def test_the_end_of_a_direction_waits_until_it_can_be_said() -> None:
    (near, client), (far, backend) = socket.socketpair(), socket.socketpair()
    with near, client, far, backend:
        near.settimeout(_TIMEOUT)
        full = Full(client)
        relay = relaylib.Relay(full.conn, PlainConn(backend))
        far.close()
        thread = golang.go(relay.run, name="relay")
        wait_for("something waits to be sent to the client", lambda: relay.client.has_to_send())
        read_exactly(near, full.sent)
        assert read_all(near).endswith(b"good-bye")
        near.close()
        thread.join(_TIMEOUT)
        assert not thread.is_alive()


def test_one_direction_ends_and_the_other_goes_on(between: Between) -> None:
    between.near.sendall(b"question")
    between.near.shutdown(socket.SHUT_WR)
    assert read_all(between.far) == b"question"
    between.far.sendall(b"answer")
    between.far.shutdown(socket.SHUT_WR)
    assert read_all(between.near) == b"answer"
    assert between.over()


def test_much_goes_both_ways_at_once(between: Between) -> None:
    data = bytes(range(256)) * 40_000

    def send(sock: socket.socket) -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    senders = [golang.go(send, sock, name="sender") for sock in (between.near, between.far)]
    received: list[bytes] = []
    other = golang.go(lambda: received.append(read_all(between.far)), name="reader")
    received.append(read_all(between.near))
    other.join()
    assert [hashlib.sha256(got).digest() for got in received] == [hashlib.sha256(data).digest()] * 2
    assert between.over()
    for sender in senders:
        sender.join()


class WithoutGoodBye(PlainConn):
    """Treat an end of the connection as an error, as TLS does when the other side has not announced it."""

    def recv(self, n: int) -> bytes:
        if data := super().recv(n):
            return data
        raise ConnectionResetError("connection ended without a good-bye")


@contextlib.contextmanager
def upload(held: int, kind: type[PlainConn] = PlainConn, **options: Any) -> Iterator[tuple[Between, int]]:
    """Run a relay that holds this much data from the client, because the backend reads nothing.

    Yield the relay and the amount of data sent.
    """
    near, client = tcp_pair()
    far, backend = socket.socketpair()
    with near, client, far, backend:
        far.settimeout(_TIMEOUT)
        relay = relaylib.Relay(kind(client), PlainConn(backend), **options)
        between = Between(relay, near, far, golang.go(relay.run, name="relay"))
        sent = 0

        def is_held() -> bool:
            nonlocal sent
            # With this much waiting data the relay stops reading, and further data stays in the socket.
            is_full = relay.backend.waiting >= held
            with contextlib.suppress(BlockingIOError):
                sent += near.send(bytes(1 << 14), socket.MSG_DONTWAIT)
            return is_full

        wait_for("the kernel holds data", is_held)
        # A reset discards data that has not been sent yet.
        wait_for("the kernel holds no data", lambda: not relaylib._held_by_kernel(near.fileno()))
        yield between, sent
        near.close()
        far.close()
        assert between.over()


@pytest.mark.parametrize("held", [1, relaylib.MAX_WAITING_BYTES], ids=["relay", "relay-and-socket"])
def test_what_the_client_said_last_arrives_although_the_backend_ended_first(held: int) -> None:
    """The client's last data arrives even if the backend's direction ends first.

    Both directions of the client's connection have ended while the backend has not received all data.
    """
    with upload(held) as (between, sent):
        between.near.shutdown(socket.SHUT_WR)
        between.far.shutdown(socket.SHUT_WR)
        assert read_all(between.near) == b""
        assert len(read_all(between.far)) == sent
        assert between.over()


def reset(between: Between) -> None:
    """Close the client's connection with unread data, which resets it."""
    between.far.sendall(b"unread")
    assert between.near.recv(1, socket.MSG_PEEK) == b"u"
    between.near.close()


@pytest.mark.parametrize("held", [1, relaylib.MAX_WAITING_BYTES], ids=["relay", "relay-and-socket"])
@pytest.mark.parametrize(
    ("kind", "end"),
    [(PlainConn, reset), (WithoutGoodBye, lambda between: between.near.close())],
    ids=["reset", "no good-bye"],
)
def test_what_the_client_said_last_arrives_although_its_connection_failed(
    kind: type[PlainConn], end: Callable[[Between], None], held: int
) -> None:
    with upload(held, kind) as (between, sent):
        end(between)
        wait_for("the client's connection has failed", lambda: between.relay.client.broken or held > 1)
        assert len(read_all(between.far)) == sent
        assert between.over()


def test_what_the_client_said_last_arrives_however_slowly_the_backend_takes_it() -> None:
    """The client's last data arrives, however slowly the backend reads.

    The relay continues to read, so the amount of waiting data may not decrease for a long time.
    """
    (near, client), (far, backend) = socket.socketpair(), socket.socketpair()
    with near, client, far, backend:
        relay = relaylib.Relay(PlainConn(client), PlainConn(backend))
        relay.client.broken = True
        relay._limit()
        first = relay._over_by
        relay._limit()
        assert first is not None and relay._over_by == first
        relay.backend.taken, relay.backend.waiting = 1, relaylib.MAX_WAITING_BYTES
        wait_for("some time has passed", lambda: time.monotonic() + relaylib.LINGER > first)
        relay._limit()
        assert relay._over_by > first


class TimeIsOver:
    """Replace a relay's poll: each wait times out at once, while the backend receives a little data."""

    def __init__(self, relay: relaylib.Relay, far: socket.socket) -> None:
        self._poll = select.poll()
        self.register, self.unregister = self._poll.register, self._poll.unregister
        self._backend, self._far = relay.backend, far
        self.taken = 0

    def poll(self, limit: float | None) -> list[tuple[int, int]]:
        while not (found := self._poll.poll(0)):
            self._take_some()
            if limit is not None:
                break
        return found

    def _take_some(self) -> None:
        before = self._held()
        while self._backend.waiting and self._held() >= before:
            self.taken += len(self._far.recv(1 << 10))

    def _held(self) -> int:
        return relaylib._held_by_kernel(self._backend.fd)


@pytest.mark.parametrize("kind", [PlainConn, WithoutGoodBye])
def test_what_the_client_said_last_arrives_although_no_poll_tells_that_the_backend_takes_it(
    kind: type[PlainConn],
) -> None:
    """The client's last data arrives even though no poll reports that the backend reads.

    The kernel accepts more data only when a third of its buffer is free.
    """
    near, client = tcp_pair()
    far, backend = tcp_pair()
    with near, client, far, backend:
        backend.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        sent = 4 * relaylib.MAX_WAITING_BYTES
        near.sendall(bytes(sent))
        near.close()
        relay = relaylib.Relay(kind(client), PlainConn(backend))
        relay._poll = poll = TimeIsOver(relay, far)  # type: ignore[assignment]
        relay.run()
        backend.close()
        assert poll.taken + len(read_all(far)) == sent


@pytest.mark.parametrize("held", [1, relaylib.MAX_WAITING_BYTES], ids=["relay", "relay-and-socket"])
def test_a_backend_that_takes_nothing_of_what_a_client_said_last_is_left(held: int) -> None:
    with upload(held, linger=0.2) as (between, _):
        reset(between)
        assert between.over()


def test_small_pieces_are_gathered_as_long_as_they_come_fast(between: Between) -> None:
    marks = low_water_marks(between.relay.backend)
    deadline = time.monotonic() + _TIMEOUT
    while not marks:
        assert time.monotonic() < deadline
        between.far.sendall(b"piece")
        assert between.near.recv(5) == b"piece"
    # No further data follows, so the relay must stop gathering and forward even the smallest piece.
    wait_for("pieces are no longer gathered", lambda: marks[-1] == 1)
    assert marks[0] > 1
    between.far.sendall(b"a")
    assert between.near.recv(1) == b"a"


def test_nothing_is_gathered_where_both_sides_speak_in_turn(between: Between) -> None:
    marks = [low_water_marks(end) for end in (between.relay.client, between.relay.backend)]
    for _ in range(100):
        between.near.sendall(b"question")
        assert between.far.recv(8) == b"question"
        between.far.sendall(b"answer")
        assert between.near.recv(6) == b"answer"
    assert marks == [[], []]


def test_what_the_backend_said_last_arrives_although_it_is_gone(between: Between) -> None:
    between.far.sendall(b"last words")
    between.far.close()
    assert read_all(between.near) == b"last words"
    between.near.close()
    assert between.over()


def test_what_the_backend_says_arrives_although_it_takes_nothing_any_more() -> None:
    """The backend's output arrives even if the backend reads nothing any more.

    A command may exit while its input is still arriving, and the client waits for its exit status.
    """
    near, client = socket.socketpair()
    far, backend = socket.socketpair()
    with near, client, far, backend:
        near.settimeout(_TIMEOUT)
        far.shutdown(socket.SHUT_RD)
        near.sendall(b"nobody takes this")
        thread = golang.go(relaylib.Relay(PlainConn(client), PlainConn(backend)).run, name="relay")
        # By now the data was read but not forwarded.
        wait_for("the relay has read all", lambda: not select.select([client], [], [], 0)[0])
        far.sendall(b"last words")
        far.close()
        assert read_all(near) == b"last words"
        near.close()
        thread.join(_TIMEOUT)
        assert not thread.is_alive()


def fill(sock: socket.socket) -> int:
    """Send until the other side, which does not read, has had no room for a while; return the number of bytes."""
    sock.setblocking(False)
    sent = 0
    while select.select([], [sock], [], 0.2)[1]:
        with contextlib.suppress(BlockingIOError):
            sent += sock.send(bytes(1 << 16))
    return sent


def test_what_can_wait_comes_once_the_backend_is_drained(between: Between) -> None:
    between.relay.client.on_data = between.relay.write_once_drained
    between.near.sendall(b"first")
    assert read_exactly(between.far, 5) == b"first"
    sent = fill(between.far)
    between.near.sendall(b"second")
    wait_for("the relay holds second", lambda: between.relay.held == b"second")
    assert not select.select([between.far], [], [], 0)[0]
    assert len(read_exactly(between.near, sent)) == sent
    between.far.settimeout(_TIMEOUT)
    assert read_exactly(between.far, 6) == b"second"


def test_what_can_wait_costs_nothing_of_what_a_backend_says_that_closes(between: Between) -> None:
    between.relay.client.on_data = between.relay.write_once_drained
    sent = fill(between.far)
    between.far.close()
    between.near.sendall(b"ping")
    wait_for("the relay holds ping", lambda: between.relay.held == b"ping")
    assert len(read_all(between.near)) == sent


def test_what_can_wait_comes_though_the_last_read_ended_where_the_backend_did() -> None:
    """Delayed data is sent even if the last read ended exactly where the backend's output did.

    The relay checks whether the backend has more output when it matters, because a read may not show it, and the state
    may change.
    """
    (near, client), (far, backend) = socket.socketpair(), socket.socketpair()
    with near, client, far, backend:
        relay = relaylib.Relay(PlainConn(client), PlainConn(backend))
        assert relay._all_was_passed_on()
        far.sendall(b"x")
        assert not relay._all_was_passed_on()
        backend.recv(1)
        assert relay._all_was_passed_on()
        relay.client.waiting = 1
        assert not relay._all_was_passed_on()


def test_what_can_wait_has_a_bound(between: Between) -> None:
    between.relay.client.on_data = between.relay.write_once_drained
    sent = fill(between.far)
    between.near.sendall(bytes(relaylib.MAX_HELD_BYTES + 1))
    between.far.settimeout(_TIMEOUT)
    assert len(read_exactly(between.far, relaylib.MAX_HELD_BYTES + 1)) == relaylib.MAX_HELD_BYTES + 1
    assert len(read_exactly(between.near, sent)) == sent


@pytest.mark.parametrize("between", [{"linger": 0.2}], indirect=True)
def test_a_client_that_sends_on_to_a_backend_that_is_gone_is_left(between: Between) -> None:
    between.near.sendall(b"unread")
    assert between.far.recv(1, socket.MSG_PEEK) == b"u"
    # Closing with unread data resets the connection.
    between.far.close()
    deadline = time.monotonic() + _TIMEOUT
    while between.thread.is_alive() and time.monotonic() < deadline:
        between.near.sendall(bytes(1 << 10))
    assert not between.thread.is_alive()


@pytest.mark.parametrize("between", [{"linger": 0.2}], indirect=True)
@pytest.mark.parametrize("size", [1, 4 << 10, 1 << 20])
@pytest.mark.parametrize("waiting", [0, 16 << 20], ids=["taken", "not taken"])
def test_a_backend_that_speaks_on_to_a_client_that_was_told_the_end_is_left(
    between: Between, waiting: int, size: int
) -> None:
    """The relay abandons a backend that keeps sending after the direction to the client was closed.

    This holds whether or not the backend has received its data.
    """
    relay = between.relay

    def end(data: bytes) -> None:
        relay.backend.write(bytes(waiting))
        relay.client.end_writes()
        relay.backend.end_writes()

    relay.client.on_data = end
    between.near.sendall(b"bye")
    assert read_all(between.near) == b""
    between.near.close()
    # After the relay has ended, the sent data is not read.
    between.far.setblocking(False)
    deadline = time.monotonic() + _TIMEOUT
    while between.thread.is_alive() and time.monotonic() < deadline:
        if select.select([], [between.far], [], 0.05)[1]:
            between.far.send(bytes(size))
    assert not between.thread.is_alive()


def test_a_client_that_breaks_off_ends_it_at_once(between: Between) -> None:
    # Closing with unread data resets the connection.
    between.far.sendall(b"unread")
    assert between.near.recv(1, socket.MSG_PEEK) == b"u"
    between.near.close()
    assert between.over()


def test_a_client_that_is_cut_off_here_ends_it_at_once(between: Between) -> None:
    conn = between.relay.client.conn
    assert isinstance(conn, PlainConn)
    conn.cut()
    assert between.over()


@pytest.mark.parametrize("between", [{"linger": 0.05}], indirect=True)
@pytest.mark.parametrize("which", ["client", "backend"])
def test_an_end_whose_pieces_were_gathered_does_not_keep_the_relay(between: Between, which: str) -> None:
    """A connection whose small pieces were gathered ends the relay when it ends.

    Otherwise a client that stays connected after fast output of a command would make the relay poll every two
    milliseconds forever.
    """
    end = getattr(between.relay, which)
    end.gathering = True
    sock = between.near if which == "client" else between.far
    sock.sendall(b"last words")
    sock.shutdown(socket.SHUT_WR)
    assert between.over()
    assert not end.gathering


def test_who_was_left_gathers_no_more() -> None:
    near, client = socket.socketpair()
    with near, client:
        end = relaylib.End(PlainConn(client))
        end.gathering = True
        end.abandon()
        assert not end.gathering


@pytest.mark.parametrize("between", [{"linger": 0.05}], indirect=True)
def test_a_backend_that_does_not_answer_the_end_is_left(between: Between) -> None:
    between.near.shutdown(socket.SHUT_WR)
    assert between.over()


@pytest.mark.parametrize("between", [{"idle_timeout": 0.05}], indirect=True)
def test_a_connection_that_carries_nothing_for_long_is_ended(between: Between) -> None:
    assert between.over()


def test_a_slow_reader_stops_the_sender(between: Between) -> None:
    """A slow reader stops the sender, so memory use stays small.

    The relay reads nothing from one side while the other accepts nothing.
    """
    between.near.setblocking(False)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            try:
                sent += between.near.send(bytes(1 << 16))
            except BlockingIOError:
                # The relay may be about to read.
                between.near.settimeout(0.2)
                try:
                    sent += between.near.send(bytes(1 << 16))
                except TimeoutError:
                    raise BlockingIOError from None
                finally:
                    between.near.setblocking(False)
    assert between.relay.backend.waiting < 1 << 20
    between.near.shutdown(socket.SHUT_WR)
    assert len(read_all(between.far)) == sent


def test_many_small_pieces_arrive_in_order(between: Between) -> None:
    """Many small pieces arrive complete and in order.

    They are forwarded together when more arrive at once, and the last ones are not forgotten.
    """
    got = bytearray()
    for number in range(300):
        between.far.sendall(b"%d;" % number)
        if number % 3 == 0:
            got += between.near.recv(1 << 16)
    between.far.shutdown(socket.SHUT_WR)
    got += read_all(between.near)
    assert bytes(got) == b"".join(b"%d;" % number for number in range(300))


def test_a_client_may_read_late_what_the_backend_said(between: Between) -> None:
    between.far.sendall(b"a" * 100_000)
    between.far.close()
    between.near.shutdown(socket.SHUT_WR)
    assert between.over(), "all is in the client's socket by now"
    assert read_all(between.near) == b"a" * 100_000


def test_a_client_may_pause_although_the_backend_has_ended() -> None:
    """A client may pause after the backend has ended without losing data.

    Otherwise the end of a command's output would be lost without an error at the client.
    """
    near, client = socket.socketpair()
    far, backend = socket.socketpair()
    with near, client, far, backend:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        near.settimeout(_TIMEOUT)
        relay = relaylib.Relay(PlainConn(client), PlainConn(backend), linger=0)

        def run() -> None:
            relay.run()
            client.close()

        thread = golang.go(run, name="relay")
        said = b"a" * (1 << 17)
        far.sendall(said)
        far.close()
        wait_for("the backend has ended", lambda: relay.backend.read_ended)
        # This time is long enough for a relay that does not wait for the client.
        thread.join(0.1)
        assert read_all(near) == said
        near.close()
        thread.join(_TIMEOUT)
        assert not thread.is_alive()


class _SmallRecords:
    """Represent a connection with `count` unread records of `size` bytes; each read calls `note`."""

    def __init__(self, count: int, note: Callable[[], object] = lambda: None, size: int = 1) -> None:
        self._left, self._note, self._size = count, note, size

    def recv(self, n: int) -> bytes:
        if not self._left:
            raise WouldWait(select.POLLIN)
        self._left -= 1
        self._note()
        return bytes(bytearray(b"a") * self._size)

    def fileno(self) -> int:
        return 0


def test_many_small_records_leave_the_turn_to_others() -> None:
    order: list[str] = []
    threads: list[golang.Thread] = []
    busy, over = golang.Channel[None](), golang.Channel[None]()

    def keep_turn() -> None:
        with Turn(relaylib.TURNS):
            busy.send(None)
            over.recv(_TIMEOUT)

    def other() -> None:
        with Turn(relaylib.TURNS):
            order.append("other")

    def note() -> None:
        if not order:
            for _ in range(MAX_TURNS - 1):
                threads.append(golang.go(keep_turn, name="busy"))
                assert busy.recv(_TIMEOUT)[1]
            threads.append(golang.go(other, name="other"))
            wait_for("the relay waits for its turn", lambda: len(relaylib.TURNS._waiting) == 1)
        order.append("record")

    conn: Any = _SmallRecords(3 * relaylib.PIECES_IN_TURN, note)
    data: list[bytes] = []
    end = relaylib.End(conn)
    end.on_data = data.append
    try:
        end.read(relaylib.End(conn))
        assert b"".join(data) == b"a" * 3 * relaylib.PIECES_IN_TURN
        assert order.index("other") <= relaylib.PIECES_IN_TURN
    finally:
        over.close()
        for thread in threads:
            thread.join(_TIMEOUT)


def test_small_records_take_hardly_more_memory_than_what_is_in_them() -> None:
    """Small records take hardly more memory than their contents.

    There are hundreds of streams, and each may be in the middle of a read while others have their turn.
    """
    conn: Any = _SmallRecords(1 << 15, size=2)
    data: list[bytes] = []
    end, sink = relaylib.End(conn), relaylib.End(conn)
    end.on_data = data.append
    tracemalloc.start()
    try:
        end.read(sink)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert b"".join(data) == b"a" * (1 << 16)
    assert peak < 4 << 16
