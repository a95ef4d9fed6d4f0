"""Provide addresses that do not respond, and names with slow look-ups, for tests."""

from __future__ import annotations

import _socket
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pkg.golang.net import Address

_WAIT = 30.0


def stream_address(sock: socket.socket) -> Address:
    return sock.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", sock.getsockname()


@contextmanager
def silent(host: str) -> Iterator[Address]:
    """Yield an address that does not respond, because its queue of unaccepted connections is full."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, 0), family=family, backlog=0))
        for _ in range(2):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield stream_address(listener)


class Resolver:
    """Replace the system's resolver.

    A name in `addresses` resolves to these addresses. The look-up of any other name hangs until `go_on` is set.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: dict[str, list[Address]] = {}
        self.go_on = threading.Event()
        self.asked: list[str] = []
        self.answered: list[str] = []
        monkeypatch.setattr(_socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(
        self, host: str, port: object, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Address]:
        if flags:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.asked.append(host)
        if host not in self.addresses:
            self.go_on.wait(_WAIT)
        self.answered.append(host)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses[host]
