"""Connect to one of the addresses that a name has, as long as the caller's context lasts.

Go: net/dial.go (dialParallel, dialSerial, partialDeadline)
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
from collections.abc import Callable, Sequence
from time import monotonic

from pkg import golang
from pkg.golang.net.lookup import IO_TIMEOUT, Address, DialTimeoutError, raise_if_canceled
from pkg.golang.turn import let_others

# Seconds after which the addresses of the other family (IPv4 or IPv6) are tried beside those of the first: RFC 6555.
FALLBACK_DELAY = 0.3
# Seconds that an address gets at least, while there are as many.
MIN_ADDRESS_TIMEOUT = 2.0

# Seconds. A poll takes no time-out of more than 24 days, and a probe may ask for 68 years.
_LONGEST_POLL = 1e6

Control = Callable[[socket.socket], object]


def dial_parallel(ctx: golang.Context, addresses: Sequence[Address], control: Control) -> socket.socket:
    """A connection, not blocking, to the address that lets one connect first.

    The addresses of the first one's family are tried one after the other; those of the other family in the same way,
    but only after FALLBACK_DELAY, or when all of the first have failed. `control` is called for each socket before it
    connects, and ends the try of this address by raising OSError. Raises the OSError of the first address when all
    fail, and ConnectionAbortedError when ctx is cancelled.
    """
    primaries = [address for address in addresses if address[0] == addresses[0][0]]
    fallbacks = [address for address in addresses if address[0] != addresses[0][0]]
    fallback_at = monotonic() + FALLBACK_DELAY
    dials: list[_DialSerial] = []

    def hang_up_all() -> None:
        for dial in list(dials):
            dial.hang_up()

    stop = golang.after_func(ctx, hang_up_all)
    remaining = ctx.remaining()
    deadline = math.inf if remaining is None else monotonic() + remaining
    try:
        dials.append(_DialSerial(primaries, deadline, control))
        while True:
            if fallbacks and (dials[0].sock is None or monotonic() >= fallback_at):
                dials.append(_DialSerial(fallbacks, deadline, control))
                fallbacks = []
            # Here, for a socket that had not begun to connect could not be hung up.
            raise_if_canceled(ctx)
            running = [dial for dial in dials if dial.sock is not None]
            if not running:
                assert dials[0].error is not None
                raise dials[0].error
            wake = min(dial.until for dial in running)
            with let_others(ctx):
                _wait(running, min(wake, fallback_at) if fallbacks else wake)
            for dial in running:
                if (sock := dial.look()) is not None:
                    return sock
    finally:
        stop()
        for dial in dials:
            dial.close()
            # An error that is raised has this frame: together they would stay, with all who called, until garbage is
            # collected.
            dial.error = None


def hang_up(sock: socket.socket) -> None:
    """End both directions, from any thread; the owner of the socket sees the end and closes it."""
    with contextlib.suppress(OSError):
        # Not through the TLS layer, which another thread may be inside of.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def partial_deadline(now: float, deadline: float, addresses_remaining: int) -> float:
    """Until when one address is tried, so that the others get their share of the time. Raises DialTimeoutError."""
    remaining = deadline - now
    if remaining <= 0:
        raise DialTimeoutError(IO_TIMEOUT)
    share = remaining / addresses_remaining
    return now + max(share, min(remaining, MIN_ADDRESS_TIMEOUT))


class _DialSerial:
    """Tries addresses one after the other. Go: dialSerial"""

    def __init__(self, addresses: Sequence[Address], deadline: float, control: Control) -> None:
        self._left = list(addresses)
        self._deadline = deadline
        self._control = control
        # The socket that is connecting, None when no address is left; until when it may; whether there is news of it.
        self.sock: socket.socket | None = None
        self.until = 0.0
        self.ready = False
        # What the first address failed with: that is what the user most likely meant to use.
        self.error: OSError | None = None
        self._begin_next()

    def look(self) -> socket.socket | None:
        """The socket if it is connected now, for the caller to own; goes on to the next address if it has failed."""
        if self.sock is None or not (self.ready or monotonic() >= self.until):
            return None
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self.ready and code == 0:
            sock, self.sock = self.sock, None
            return sock
        self._fail(OSError(code, os.strerror(code)) if code else DialTimeoutError(IO_TIMEOUT))
        self._begin_next()
        return None

    def hang_up(self) -> None:
        """Make the wait for the socket end, from any thread."""
        if (sock := self.sock) is not None:
            hang_up(sock)

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def _begin_next(self) -> None:
        while self._left and self.sock is None:
            try:
                self.until = partial_deadline(monotonic(), self._deadline, len(self._left))
                family, kind, protocol, _, address = self._left.pop(0)
                self.sock = socket.socket(family, kind, protocol)
                self.sock.setblocking(False)
                self.ready = False
                self._control(self.sock)
                self.sock.connect(address)
            except BlockingIOError:
                pass  # it has begun
            except TimeoutError as err:
                self._left.clear()
                self._fail(err)
            except OSError as err:
                self._fail(err)

    def _fail(self, err: OSError) -> None:
        self.error = self.error or err
        self.close()


def _wait(dials: Sequence[_DialSerial], until: float) -> None:
    """Wait until there is news of one of the sockets, or until that time has come."""
    poll = select.poll()
    by_descriptor = {dial.sock.fileno(): dial for dial in dials if dial.sock is not None}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLOUT)
    seconds = min(max(0.0, until - monotonic()), _LONGEST_POLL)
    # A millisecond more, for poll cuts off the fraction and would return too early again and again.
    for descriptor, _ in poll.poll(seconds * 1000 + 1):
        by_descriptor[descriptor].ready = True
