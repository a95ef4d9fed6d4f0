"""Choose the connections that stay when a server has too many.

DIVERGES (safer): in this kubelet, a server has a bounded number of connections, and one client can have only a part of
them.
Go: pkg/kubelet/server/server.go, ListenAndServeKubeletServer: the Go kubelet has no bound.
Why: each connection takes a thread, and a client without credentials could take all memory.
Test: server_test.py:test_an_idle_connection_makes_way_at_the_limit,
server_test.py:test_one_user_cannot_hold_all_connections, room_test.py:test_a_crowd_from_one_source
"""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pkg.golang.http.response import ClientGone, HTTPError

MAX_CONNECTIONS = 1000
# Lasting requests, such as followed logs and commands, leave this many connections to other requests.
RESERVED_CONNECTIONS = 100
# These constants limit the simultaneous requests of one user, and those of one kind by one user: a user who follows as
# many logs as allowed can still run commands.
MAX_REQUESTS_PER_USER = 750
MAX_REQUESTS_PER_USER_AND_KIND = 500
# The heads of one user's requests may have this many bytes in total.
MAX_HEAD_BYTES_PER_USER = 64 << 20
# This constant limits the unauthenticated connections from one address, or from one IPv6 network of 64 bits. When the
# kubelet restarts, an API server may ask for the logs of all containers of a full node at once: 110 pods with two
# containers each.
MAX_UNAUTHENTICATED_PER_SOURCE = 300
# This constant limits the total bytes that all unauthenticated clients have sent, plus what their connections cost.
MAX_UNAUTHENTICATED_BYTES = 32 << 20
# A connection that has completed only the handshake takes this much memory: thread, buffers, and OpenSSL's state.
CONNECTION_COST_BYTES = 96 << 10
# Evicted connections have ended within this many seconds.
_LEAVING_TIMEOUT = 30.0

_IPV6_NETWORK_BITS = 64

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Limits:
    """Define how much room a server has; sizes are in bytes."""

    connections: int = MAX_CONNECTIONS
    reserved: int = RESERVED_CONNECTIONS
    per_user: int = MAX_REQUESTS_PER_USER
    per_user_and_kind: int = MAX_REQUESTS_PER_USER_AND_KIND
    user_bytes: int = MAX_HEAD_BYTES_PER_USER
    unauthenticated_per_source: int = MAX_UNAUTHENTICATED_PER_SOURCE
    unauthenticated_bytes: int = MAX_UNAUTHENTICATED_BYTES


@dataclass(slots=True)
class _Guest:
    """Describe one connection. While `bytes` is not 0, the client counts as unauthenticated."""

    source: str
    bytes: int = CONNECTION_COST_BYTES
    user: str = ""
    kind: str = ""
    lasting: bool = False


@dataclass(slots=True)
class _Usage:
    """Hold one user's current requests by kind, and their bytes."""

    requests: Counter[str] = field(default_factory=Counter)
    bytes: int = 0


class Room(Generic[C]):
    """Account for connections and evict some when there are too many. All methods are thread-safe.

    `evict` is called with the lock held and must not block. A connection waits until one of its requests is admitted,
    and again after the response to that request. When there is no room, the connection that has waited longest is
    evicted. A connection whose request was admitted stays until the response is complete.
    """

    def __init__(self, limits: Limits, evict: Callable[[C], None]) -> None:
        self._limits = limits
        self._evict = evict
        self._lock = threading.Lock()
        # _lock guards these fields. `_waiting` holds the waiting connections, in the order in which they began to wait.
        self._waiting: dict[C, _Guest] = {}
        self._admitted: dict[C, _Guest] = {}
        # These fields hold the waiting connections of unauthenticated clients, by source, and the sum of their bytes.
        self._unknown: dict[str, dict[C, None]] = {}
        self._unknown_bytes = 0
        # `_leaving` holds the connections that were evicted but have not ended yet.
        self._leaving: dict[C, _Guest] = {}
        self._left = threading.Condition(self._lock)
        self._users: dict[str, _Usage] = {}
        self._lasting = 0

    def enter(self, connection: C, source: str) -> bool:
        """Accept a new connection; return False if there is no room."""
        with self._lock:
            if len(self._waiting) + len(self._admitted) >= self._limits.connections:
                if not self._waiting:
                    return False
                self._evict_locked(next(iter(self._waiting)))
            self._wait_locked(connection, _Guest(source))
            return True

    def hold(self, connection: C, count: int) -> None:
        """Record that a request that is not admitted yet has `count` bytes, and wait until there is room for them.

        Raise ClientGone if they were too many.
        """
        with self._lock:
            guest = self._waiting.get(connection)
            if guest is None:
                raise ClientGone("connection was evicted to make room for others")
            if guest.bytes:
                # The connection keeps its place in the order: sending slowly must not make a connection look younger.
                self._unknown_bytes += CONNECTION_COST_BYTES + count - guest.bytes
                guest.bytes = CONNECTION_COST_BYTES + count
                self._make_room_locked(guest)
            else:
                self._remove_locked(connection)
                guest.bytes = CONNECTION_COST_BYTES + count
                self._wait_locked(connection, guest)
            self._left.wait_for(lambda: connection not in self._waiting or self._fits_locked(), _LEAVING_TIMEOUT)
            if connection not in self._waiting:
                raise ClientGone("connection was evicted to make room for others")

    def _fits_locked(self) -> bool:
        leaving = sum(guest.bytes for guest in self._leaving.values())
        return self._unknown_bytes + leaving <= self._limits.unauthenticated_bytes

    def admit(self, connection: C, user: str, kind: str, *, lasting: bool) -> None:
        """Admit a request, whose client is now known. With `lasting`, the request may take long.

        Raise HTTPError 429 if the user has too many requests, and ClientGone if the connection was evicted.
        """
        with self._lock:
            if connection in self._admitted:
                return
            guest = self._remove_locked(connection)
            usage = self._users.get(user) or _Usage()
            if not self._may_locked(usage, guest, kind, lasting):
                self._wait_locked(connection, guest)
                raise HTTPError(429, "Too Many Requests")
            guest.user, guest.kind, guest.lasting = user, kind, lasting
            usage.requests[kind] += 1
            usage.bytes += guest.bytes
            self._users[user] = usage
            self._lasting += lasting
            self._admitted[connection] = guest

    def rest(self, connection: C) -> None:
        """Record that the response was sent, so that the connection waits for the next one."""
        with self._lock:
            guest = self._admitted.pop(connection, None)
            if guest is not None:
                self._answered_locked(guest)
                guest.bytes = 0
                self._wait_locked(connection, guest)

    def leave(self, connection: C) -> None:
        """Record that the connection has ended."""
        with self._lock:
            guest = self._admitted.pop(connection, None)
            if guest is not None:
                self._answered_locked(guest)
            elif connection in self._waiting:
                self._remove_locked(connection)
            elif self._leaving.pop(connection, None) is not None:
                self._left.notify_all()

    def _may_locked(self, usage: _Usage, guest: _Guest, kind: str, lasting: bool) -> bool:
        limits = self._limits
        return (
            usage.requests.total() < limits.per_user
            and usage.requests[kind] < limits.per_user_and_kind
            and usage.bytes + guest.bytes <= limits.user_bytes
            and not (lasting and self._lasting >= limits.connections - limits.reserved)
        )

    def _answered_locked(self, guest: _Guest) -> None:
        self._lasting -= guest.lasting
        usage = self._users[guest.user]
        usage.bytes -= guest.bytes
        usage.requests[guest.kind] -= 1
        if not usage.requests.total():
            del self._users[guest.user]

    def _wait_locked(self, connection: C, guest: _Guest) -> None:
        """Make the connection wait, after all others."""
        self._waiting[connection] = guest
        if guest.bytes:
            self._unknown.setdefault(guest.source, {})[connection] = None
            self._unknown_bytes += guest.bytes
            self._make_room_locked(guest)

    def _make_room_locked(self, guest: _Guest) -> None:
        """Evict unauthenticated connections, those that have waited longest first.

        This function evicts one connection if the guest's source has too many, and more while their bytes exceed the
        limit.
        """
        from_there = self._unknown[guest.source]
        if guest.source and len(from_there) > self._limits.unauthenticated_per_source:
            self._evict_locked(next(iter(from_there)))
        while self._unknown_bytes > self._limits.unauthenticated_bytes:
            self._evict_locked(next(each for each, guest in self._waiting.items() if guest.bytes))

    def _evict_locked(self, connection: C) -> None:
        self._leaving[connection] = self._remove_locked(connection)
        self._left.notify_all()
        self._evict(connection)

    def _remove_locked(self, connection: C) -> _Guest:
        """Remove a waiting connection. Raise ClientGone if it was evicted before."""
        guest = self._waiting.pop(connection, None)
        if guest is None:
            raise ClientGone("connection was evicted to make room for others")
        if guest.bytes:
            self._unknown_bytes -= guest.bytes
            from_there = self._unknown[guest.source]
            del from_there[connection]
            if not from_there:
                del self._unknown[guest.source]
        return guest


def source_of(address: tuple[str, int] | None) -> str:
    """Return what identifies the connections of one machine: its address or network, or "" for a unix socket."""
    if address is None:
        return ""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if host.version == 4:
        return str(host)
    if host.ipv4_mapped is not None:
        return str(host.ipv4_mapped)
    return str(ipaddress.ip_network((host, _IPV6_NETWORK_BITS), strict=False))
