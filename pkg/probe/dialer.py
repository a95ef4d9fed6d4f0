"""Opening connections for probes and hooks.

Go: pkg/probe/dialer_others.go, net (dial.go, lookup.go)
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pkg import golang
from pkg.golang import http

# Names that are looked up at the same time for one owner, which is a pod.
MAX_LOOKUPS_PER_OWNER = 4
# Seconds for each address of a host, where the context has no deadline. Go leaves that to the kernel, which gives up
# after minutes.
_CONNECT_TIMEOUT = 30.0
# Seconds. A socket takes no time-out of more than 24 days, and a probe may ask for 68 years.
_LONGEST_TIMEOUT = 1e6
# Seconds that an address gets at least while there are others. Go: partialDeadline
_SANE_MINIMUM = 2.0
# Wait at most a second when closing: a node with many probes would else run out of ports that stand in TIME_WAIT.
_LINGER_ONE_SECOND = struct.pack("ii", 1, 1)
_OWNER = object()

# (family, type, protocol, canonical name, address), as getaddrinfo gives them.
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


def with_owner(ctx: golang.Context, owner: str) -> golang.Context:
    """A context whose look-ups count as those of `owner`."""
    return golang.with_value(ctx, _OWNER, owner)


def dial(ctx: golang.Context, host: str, port: int) -> socket.socket:
    """Connect to the first address of the host that answers. The look-up and the attempts end with ctx.

    Raises OSError in the words of Go's dialer.
    """
    try:
        found = _lookup(ctx, host, port)
    except TimeoutError as err:
        raise TimeoutError(f"dial tcp: lookup {printable(host)}: i/o timeout") from err
    except OSError as err:
        raise OSError(f"dial tcp: lookup {printable(host)}: {err.strerror or err}") from err
    failure: OSError | None = None
    for index, address in enumerate(found):
        try:
            return _connect(ctx, address, len(found) - index)
        except OSError as err:
            failure = failure or err
    kind = TimeoutError if isinstance(failure, TimeoutError) else OSError
    raise kind(f"dial tcp {join_host_port(host, port)}: {_reason(failure)}") from failure


def _connect(ctx: golang.Context, address: _Address, addresses_left: int) -> socket.socket:
    """Connect within the share of ctx that this address has. Raises OSError."""
    family, kind, protocol, _, there = address
    share = _share(remaining(ctx), addresses_left)
    sock = socket.socket(family, kind, protocol)
    stop = golang.after_func(ctx, functools.partial(http.hang_up, sock))
    try:
        sock.settimeout(share)
        sock.connect(there)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ONE_SECOND)
        return sock
    except BaseException:
        sock.close()
        raise
    finally:
        stop()


def _share(seconds: float | None, addresses_left: int) -> float:
    """How long one attempt may take. Go: partialDeadline"""
    if seconds is None:
        return _CONNECT_TIMEOUT
    return max(seconds / addresses_left, min(seconds, _SANE_MINIMUM))


def remaining(ctx: golang.Context) -> float | None:
    """Seconds until the deadline of ctx, more than none; None without one.

    Raises TimeoutError or ConnectionAbortedError when ctx is done, in the words of Go's client.
    """
    err = ctx.err()
    if isinstance(err, golang.Canceled):
        raise ConnectionAbortedError(str(err))
    left = ctx.remaining()
    if err is not None or left == 0:
        raise TimeoutError("context deadline exceeded")
    return None if left is None else min(left, _LONGEST_TIMEOUT)


def join_host_port(host: str, port: int) -> str:
    """host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def printable(text: str) -> str:
    """The text for messages: what a server sends need not be text, and may control a terminal."""
    cleaned = text.encode(errors="surrogateescape").decode(errors="replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in cleaned)


def _reason(err: OSError | None) -> str:
    if isinstance(err, TimeoutError):
        return "i/o timeout"
    if err is None or err.errno is None:
        return str(err or "no address found")
    return f"connect: {os.strerror(err.errno).lower()}"


@dataclass(slots=True)
class _Lookup:
    """One look-up under way; all who ask for the same wait for it."""

    done: golang.Channel[None] = field(default_factory=golang.Channel)
    found: Sequence[_Address] = ()
    err: Exception | None = None


_lock = threading.Lock()  # guards _lookups
# The look-ups under way, by owner and then by host and port.
_lookups: dict[str, dict[tuple[str, int], _Lookup]] = {}


def _lookup(ctx: golang.Context, host: str, port: int) -> Sequence[_Address]:
    """The host's addresses. Raises OSError, and ValueError for what can be no name.

    A look-up cannot be ended: it goes on, on a thread of its own, when ctx ends. So that these threads have a bound,
    an owner with too many look-ups under way gets no other.
    """
    try:
        return _getaddrinfo(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # It is a name.
    lookup = _share_lookup(ctx.value(_OWNER) or "", host, port)
    if golang.select(lookup.done, ctx.done()).index == 1:
        remaining(ctx)
    if lookup.err is not None:
        raise lookup.err
    return lookup.found


def _share_lookup(owner: str, host: str, port: int) -> _Lookup:
    """The look-up under way for the same, or a new one. Raises OSError when there is to be no other."""
    key = (host, port)
    with _lock:
        under_way = _lookups.setdefault(owner, {})
        if key in under_way:
            return under_way[key]
        if len(under_way) >= MAX_LOOKUPS_PER_OWNER:
            raise OSError(f"{len(under_way)} look-ups of the same pod are under way")
        lookup = under_way[key] = _Lookup()
    try:
        golang.go(_run, lookup, owner, host, port, name=f"probe-lookup-{host}"[:60])
    except golang.ThreadError as err:
        # Those who wait are told, and the next probe tries again.
        lookup.err = OSError(str(err))
        _end(lookup, owner, key)
    return lookup


def _run(lookup: _Lookup, owner: str, host: str, port: int) -> None:
    try:
        lookup.found = _getaddrinfo(host, port, 0)
    except Exception as err:  # Who waits for the look-up raises it.
        lookup.err = err
    finally:
        _end(lookup, owner, (host, port))


def _end(lookup: _Lookup, owner: str, key: tuple[str, int]) -> None:
    with _lock:
        del _lookups[owner][key]
        if not _lookups[owner]:
            del _lookups[owner]
    lookup.done.close()


def _getaddrinfo(host: str, port: int, flags: int) -> Sequence[_Address]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
