"""Connect to one of the addresses of a name, for at most as long as the caller's context lasts.

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

# After this many seconds, the addresses of the other family (IPv4 or IPv6) are tried in parallel, as in RFC 6555.
FALLBACK_DELAY = 0.3
# Each address gets at least this many seconds, as long as that much time remains.
MIN_ADDRESS_TIMEOUT = 2.0

# The unit is seconds. A poll accepts no timeout above 24 days, and a probe may ask for 68 years.
_LONGEST_POLL = 1e6

Control = Callable[[socket.socket], object]


def dial_parallel(ctx: golang.Context, addresses: Sequence[Address], control: Control) -> socket.socket:
    """Return a non-blocking connection to the address that accepts first.

    This function tries the addresses of the first address's family one after the other. It tries those of the other
    family in the same way, but only after FALLBACK_DELAY or when all of the first family have failed. It calls
    `control` for each socket before the socket connects; `control` rejects the address by raising OSError. Raise the
    OSError of the first address if all fail, and ConnectionAbortedError if ctx is cancelled.
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
            # This check comes here because hang_up_all has no effect on a socket that has not started to connect.
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
            # A raised error refers to this frame. If the frame also refers to the error, both stay in memory, together
            # with the frames of all callers, until the garbage collector runs.
            dial.error = None


def hang_up(sock: socket.socket) -> None:
    """Shut down both directions, from any thread. The socket's owner notices the end and closes the socket."""
    with contextlib.suppress(OSError):
        # This call bypasses the TLS layer, which another thread may be using.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def partial_deadline(now: float, deadline: float, addresses_remaining: int) -> float:
    """Return the time until which one address is tried, so that the other addresses get their share.

    Raise DialTimeoutError if no time is left.
    """
    remaining = deadline - now
    if remaining <= 0:
        raise DialTimeoutError(IO_TIMEOUT)
    share = remaining / addresses_remaining
    return now + max(share, min(remaining, MIN_ADDRESS_TIMEOUT))


class _DialSerial:
    """Try addresses one after the other.

    Go: dialSerial
    """

    def __init__(self, addresses: Sequence[Address], deadline: float, control: Control) -> None:
        self._left = list(addresses)
        self._deadline = deadline
        self._control = control
        # `sock` is the socket that is connecting, or None when no address is left. `until` is the time limit of the
        # attempt. `ready` says that a poll has reported an event of the socket.
        self.sock: socket.socket | None = None
        self.until = 0.0
        self.ready = False
        # `error` is the error of the first address, which the user most likely meant to use.
        self.error: OSError | None = None
        self._begin_next()

    def look(self) -> socket.socket | None:
        """Return the socket if it is connected; the caller then owns it.

        Try the next address if the socket has failed.
        """
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
        """End the wait for the socket, from any thread."""
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
                pass  # The connection attempt has started.
            except TimeoutError as err:
                self._left.clear()
                self._fail(err)
            except OSError as err:
                self._fail(err)

    def _fail(self, err: OSError) -> None:
        self.error = self.error or err
        self.close()


def _wait(dials: Sequence[_DialSerial], until: float) -> None:
    """Wait until one of the sockets has an event, or until the given time."""
    poll = select.poll()
    by_descriptor = {dial.sock.fileno(): dial for dial in dials if dial.sock is not None}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLOUT)
    seconds = min(max(0.0, until - monotonic()), _LONGEST_POLL)
    # One millisecond is added, because poll drops the fraction and would return too early again and again.
    for descriptor, _ in poll.poll(seconds * 1000 + 1):
        by_descriptor[descriptor].ready = True
