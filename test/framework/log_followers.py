"""Run many clients that follow logs from one kubelet, all in one thread."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from pkg import golang

_READ_SIZE = 1 << 16
_CONNECT_TIMEOUT = 30.0
_POLL = 0.1


class Follower:
    """Follow one log on one connection, which ends with the response. The body is counted but not kept."""

    def __init__(self, sock: ssl.SSLSocket, target: str) -> None:
        self.sock = sock
        self.target = target
        self.begin = b""  # The field holds the beginning of the response.
        self.lines = 0
        self.last_line_at = 0.0  # The time is monotonic.
        self.ended = False

    @property
    def status(self) -> int:
        return int(self.begin[9:12] or b"0")

    def read(self) -> None:
        try:
            while data := self.sock.recv(_READ_SIZE):
                self._count(data)
        except ssl.SSLWantReadError:
            return
        except OSError:
            pass
        self.ended = True

    def _count(self, data: bytes) -> None:
        if len(self.begin) < 1024:
            self.begin += data
        # Each line that the tests log contains this byte, which the protocol never uses.
        lines = data.count(b"\x03")
        if lines:
            self.lines += lines
            self.last_line_at = time.monotonic()


class LogFollowers:
    """Run followers within a `with` block. `followers` has one for each target, in the order of the targets."""

    def __init__(self, port: int, targets: Iterable[str], context: ssl.SSLContext, address: str = "127.0.0.1") -> None:
        self._address = (address, port)
        self._targets = list(targets)
        self._context = context
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self.followers: list[Follower] = []

    def __enter__(self) -> Self:
        for target in self._targets:
            sock = socket.create_connection(self._address, timeout=_CONNECT_TIMEOUT)
            wrapped = self._context.wrap_socket(sock)
            wrapped.sendall(f"GET {target} HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n".encode())
            wrapped.setblocking(False)
            follower = Follower(wrapped, target)
            self.followers.append(follower)
            self._selector.register(wrapped, selectors.EVENT_READ, follower)
        self._thread = golang.go(self._read, name="log-followers-client")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._thread.join()
        self.hang_up(self.followers)
        self._selector.close()

    def hang_up(self, followers: Iterable[Follower]) -> None:
        """Close the followers' connections, like a client that is killed."""
        for each in followers:
            each.ended = True
            each.sock.close()

    def _read(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(_POLL):
                follower: Follower = key.data
                if not follower.ended:
                    follower.read()
                if follower.ended:
                    self._selector.unregister(follower.sock)


def insecure_context() -> ssl.SSLContext:
    """Return a TLS context for a kubelet with a self-signed certificate that accepts every client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def line(number: int, stream: str = "stdout") -> bytes:
    """Return a line of a log in the runtime's format that followers count."""
    seconds = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e9):09d}Z"
    return f"{stamp} {stream} F line {number}\x03\n".encode()
