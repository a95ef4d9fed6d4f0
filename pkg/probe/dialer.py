"""Open connections for probes and hooks.

Go: pkg/probe/dialer_others.go
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import socket
import struct
from collections.abc import Iterator

from pkg import golang
from pkg.golang import net
from pkg.golang.turn import let_others

# The unit is seconds; the timeout is for a context without a deadline. Go relies on the kernel, which gives up after
# minutes.
_CONNECT_TIMEOUT = 30.0
# The unit is seconds. A socket accepts no timeout above 24 days, and a probe may ask for 68 years.
_LONGEST_TIMEOUT = 1e6
# Wait at most one second when closing. Otherwise a node with many probes would run out of ports, because they stay in
# TIME_WAIT.
_LINGER_ONE_SECOND = struct.pack("ii", 1, 1)
# These errors mean a lack of file descriptors or memory for a connection, or of threads or room for a look-up.
_WANTS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class NoSocketError(Exception):
    """Signal that no descriptor or memory is available for a connection, or no room for a look-up.

    The error says nothing about the server. It is not an OSError, because OSErrors describe the server's behaviour.
    """


def dial(ctx: golang.Context, host: str, port: int) -> socket.socket:
    """Return a non-blocking connection to an address of the host. The look-up and the attempts end with ctx.

    Raise OSError with the text of Go's dialer, UnicodeError if `host` cannot be a name, and NoSocketError.

    DIVERGES (safer): in this kubelet, a probe that gets no file descriptor, memory or thread has no result for its
    container.
    Go: pkg/probe/tcp/tcp.go, DoTCPProbe: in the Go kubelet, such a probe fails, and so do HTTP and gRPC probes.
    Why: a lack of file descriptors in the kubelet would kill all containers that have such a liveness probe.
    Test: dialer_test.py:test_container_has_not_failed_when_no_socket_is_left
    """
    left = ctx.remaining()
    limited, cancel = golang.with_timeout(ctx, _CONNECT_TIMEOUT if left is None else left)
    try:
        return _dial(limited, host, port)
    finally:
        cancel()


@contextlib.contextmanager
def dialed(ctx: golang.Context, host: str, port: int) -> Iterator[socket.socket]:
    """Connect, and close the connection at the end of the block. When ctx is cancelled, reads and writes end."""
    sock = dial(ctx, host, port)
    try:
        take_back = golang.after_func(ctx, functools.partial(net.hang_up, sock))
        try:
            yield sock
        finally:
            take_back()
    finally:
        close(ctx, sock)


def close(ctx: golang.Context, sock: socket.socket) -> None:
    """Close a connection of `dial`. The function may wait for the server, at most one second."""
    with let_others(ctx):
        sock.close()


class Connection(io.RawIOBase):
    """Represent a connection on which every operation ends with ctx.

    A socket's own timeout restarts with each byte: a server that sends one byte a second could keep a probe running
    forever.
    """

    def __init__(self, ctx: golang.Context, sock: socket.socket) -> None:
        self._ctx = ctx
        self._sock = sock

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        with self._limited():
            self._sock.sendall(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with self._limited():
            return self._sock.recv_into(buffer)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Make the operation end with ctx, and raise the error of ctx if it does."""
        self._sock.settimeout(remaining(self._ctx))
        try:
            with let_others(self._ctx):
                yield
        except OSError:
            # If ctx is done, its error explains the failure of the socket.
            remaining(self._ctx)
            raise


def _dial(ctx: golang.Context, host: str, port: int) -> socket.socket:
    name = golang.printable(host[: net.MAX_NAME_LENGTH])
    try:
        found = net.lookup_host(ctx, host, port)
    except TimeoutError as err:
        raise TimeoutError(f"dial tcp: lookup {name}: {net.IO_TIMEOUT}") from err
    except OSError as err:
        kind = NoSocketError if err.errno in _WANTS else OSError
        raise kind(f"dial tcp: lookup {name}: {err.strerror or err}") from err
    try:
        sock = net.dial_parallel(ctx, found, lambda sock: None)
    except OSError as err:
        kind = TimeoutError if isinstance(err, TimeoutError) else NoSocketError if err.errno in _WANTS else OSError
        raise kind(f"dial tcp {join_host_port(host, port)}: {_reason(err)}") from err
    # This option is set late, because `dial_parallel` may close connections to other addresses, and would wait for
    # their servers.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ONE_SECOND)
    return sock


def remaining(ctx: golang.Context) -> float | None:
    """Return the seconds until the deadline of ctx, always more than 0, or None without a deadline.

    Raise TimeoutError or ConnectionAbortedError if ctx is done, with the text of Go's client.
    """
    err = ctx.err()
    if isinstance(err, golang.Canceled):
        raise ConnectionAbortedError(str(err))
    left = ctx.remaining()
    if err is not None or left == 0:
        raise TimeoutError("context deadline exceeded")
    return None if left is None else min(left, _LONGEST_TIMEOUT)


def join_host_port(host: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(err: OSError) -> str:
    if isinstance(err, TimeoutError):
        return net.IO_TIMEOUT
    if err.errno is None:
        return str(err)
    return f"connect: {os.strerror(err.errno).lower()}"
