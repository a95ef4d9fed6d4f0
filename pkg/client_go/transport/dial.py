"""Connect to one of the addresses that a name has.

Go: net/dial.go (dialParallel, dialSerial, partialDeadline)
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

# Seconds after which the addresses of the other family (IPv4 or IPv6) are tried beside those of the first: RFC 6555.
FALLBACK_DELAY = 0.3
# Seconds that an address gets at least, while there are as many.
MIN_ADDRESS_TIMEOUT = 2.0

IO_TIMEOUT = "i/o timeout"

# As getaddrinfo returns it: family, kind, protocol, canonical name, address.
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


def dial_parallel(
    addresses: Sequence[Address], deadline: float, prepare: Callable[[socket.socket], object]
) -> socket.socket:
    """A connection, not blocking, to the address that lets one connect first.

    The addresses of the first one's family are tried one after the other; those of the other family in the same way,
    but only after FALLBACK_DELAY, or when all of the first have failed. `deadline` is by time.monotonic. `prepare` is
    called for each socket before it connects, and ends the try of this address by raising OSError. Raises the OSError
    of the first address when all fail.
    """
    primaries = [address for address in addresses if address[0] == addresses[0][0]]
    fallbacks = [address for address in addresses if address[0] != addresses[0][0]]
    fallback_at = monotonic() + FALLBACK_DELAY
    dials = [_DialSerial(primaries, deadline, prepare)]
    try:
        while True:
            if fallbacks and (dials[0].sock is None or monotonic() >= fallback_at):
                dials.append(_DialSerial(fallbacks, deadline, prepare))
                fallbacks = []
            running = [dial for dial in dials if dial.sock is not None]
            if not running:
                assert dials[0].error is not None
                raise dials[0].error
            wake = min(dial.until for dial in running)
            _wait(running, min(wake, fallback_at) if fallbacks else wake)
            for dial in running:
                if (sock := dial.look()) is not None:
                    return sock
    finally:
        for dial in dials:
            dial.close()


def partial_deadline(now: float, deadline: float, addresses_remaining: int) -> float:
    """Until when one address is tried, so that the others get their share of the time. Raises TimeoutError."""
    remaining = deadline - now
    if remaining <= 0:
        raise TimeoutError(IO_TIMEOUT)
    share = remaining / addresses_remaining
    return now + max(share, min(remaining, MIN_ADDRESS_TIMEOUT))


class _DialSerial:
    """Tries addresses one after the other.  Go: dialSerial"""

    def __init__(
        self, addresses: Sequence[Address], deadline: float, prepare: Callable[[socket.socket], object]
    ) -> None:
        self._left = list(addresses)
        self._deadline = deadline
        self._prepare = prepare
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
        self._fail(OSError(code, os.strerror(code)) if code else TimeoutError(IO_TIMEOUT))
        self._begin_next()
        return None

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
                self._prepare(self.sock)
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
    # A millisecond more, for poll cuts off the fraction and would return too early again and again.
    for descriptor, _ in poll.poll(max(0.0, until - monotonic()) * 1000 + 1):
        by_descriptor[descriptor].ready = True
