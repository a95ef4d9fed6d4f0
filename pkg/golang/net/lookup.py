"""Look up the addresses of a name, for at most as long as the caller's context lasts.

The system's resolver, getaddrinfo, cannot be interrupted and may wait minutes for a dead name server. Each look-up runs
on its own thread. So a look-up that hangs delays only the callers that ask for the same name, and only until their
contexts end.

Go: net/lookup.go
"""

from __future__ import annotations

import _socket
import encodings.idna  # noqa: F401  # The first look-up would load it, and want a file descriptor for that.
import errno
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pkg import golang
from pkg.golang.turn import let_others

# One owner, which is a pod or the kubelet itself, may have this many simultaneous look-ups.
MAX_LOOKUPS_PER_OWNER = 4
# All pods together may have this many simultaneous look-ups, including pods that were deleted while the resolver hangs.
MAX_LOOKUPS_OF_PODS = 256
# A name has at most this many characters, including its final dot.
MAX_NAME_LENGTH = 254
# At most this many addresses of a name are tried. The response of a name server can hold four thousand, and the owner
# of the name server may also own the pod. Connecting to an unreachable address, such as a multicast address, fails at
# once, and the next address follows immediately.
# DIVERGES (safer): this kubelet tries only the first MAX_ADDRESSES addresses of a name.
# Go: net/dial.go, (*sysDialer).dialSerial: the Go kubelet tries all of them.
# Why: a probe would keep one of the four turns for a fifth of a second, and other probes would be late.
# Test: lookup_test.py:test_of_a_name_with_addresses_without_end_the_first_are_tried
MAX_ADDRESSES = 64
IO_TIMEOUT = "i/o timeout"
_OWNER = object()
_KUBELET = ""

# getaddrinfo returns such tuples: (family, type, protocol, canonical name, address).
Address = tuple[int, int, int, str, Any]


class DialTimeoutError(TimeoutError):
    """Signal that the time ran out before a connection was established."""


def with_owner(ctx: golang.Context, owner: str) -> golang.Context:
    """Return a context whose look-ups count against the limit of the pod `owner`, not against the kubelet's own."""
    return golang.with_value(ctx, _OWNER, owner)


def lookup_host(ctx: golang.Context, host: str, port: int) -> Sequence[Address]:
    """Return at least one address of the host for a TCP connection. The function is thread-safe.

    Raise UnicodeError if `host` cannot be a name, and OSError if the look-up fails. When ctx ends, raise
    DialTimeoutError or ConnectionAbortedError, which are OSErrors. The look-up continues after ctx has ended. To bound
    the number of such threads, an owner with too many running look-ups waits until one of them ends.
    """
    if len(host) > MAX_NAME_LENGTH:
        # Python would encode the name first, in time quadratic in its length.
        raise OSError("no such host")
    try:
        return _getaddrinfo(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # The host is a name.
    owner = ctx.value(_OWNER) or _KUBELET
    lookup = None
    while lookup is None:
        lookup, ends = _share_lookup(owner, host, port)
        with let_others(ctx):
            selected = golang.select(ctx.done(), *ends)
        if selected.took(ctx.done()):
            raise_if_canceled(ctx)
            raise DialTimeoutError(f"lookup {host}: {IO_TIMEOUT}")
    if lookup.err is not None:
        try:
            raise lookup.err
        finally:
            # The error refers to this frame. If the frame also refers to the error, both stay in memory, together with
            # the frames of all callers, until the garbage collector runs.
            del lookup
    return lookup.found


def raise_if_canceled(ctx: golang.Context) -> None:
    """Raise ConnectionAbortedError if ctx is cancelled, with the message of Go's dialer."""
    if isinstance(ctx.err(), golang.Canceled):
        raise ConnectionAbortedError("operation was canceled")


@dataclass(slots=True)
class _Lookup:
    """Represent a running look-up, which all callers that ask for the same name and port share."""

    done: golang.Channel[None] = field(default_factory=golang.Channel)
    found: Sequence[Address] = ()
    err: Exception | None = None


_lock = threading.Lock()  # This lock guards _lookups.
# The dicts hold the running look-ups, by owner, then by host and port.
_lookups: dict[str, dict[tuple[str, int], _Lookup]] = {}


def _share_lookup(owner: str, host: str, port: int) -> tuple[_Lookup | None, list[golang.Channel[None]]]:
    """Return the running look-up for the same host and port, or a new one, and the channel that closes at its end.

    If the owner has too many look-ups, return None and the channels of those. Raise OSError if the pods have too many.
    """
    key = (host, port)
    with _lock:
        own = _lookups.get(owner, {})
        if (shared := own.get(key)) is not None:
            return shared, [shared.done]
        if len(own) >= MAX_LOOKUPS_PER_OWNER:
            return None, [each.done for each in own.values()]
        _check_bound_locked(owner)
        lookup = _lookups.setdefault(owner, {})[key] = _Lookup()
    try:
        golang.go(_run, lookup, owner, host, port, name=f"lookup-{host}"[:60])
    except golang.ThreadError as err:
        # The waiting callers get this error, and try again later.
        lookup.err = OSError(errno.ENOMEM, str(err))
        _end(lookup, owner, key)
    return lookup, [lookup.done]


def _check_bound_locked(owner: str) -> None:
    pods = sum(len(under_way) for each, under_way in _lookups.items() if each)
    if owner and pods >= MAX_LOOKUPS_OF_PODS:
        # Other pods may have used up the limit: this is a shortage of the node, like one of memory, and says nothing
        # about the host.
        raise OSError(errno.ENOBUFS, f"{pods} look-ups of pods are running")


def _run(lookup: _Lookup, owner: str, host: str, port: int) -> None:
    try:
        lookup.found = _getaddrinfo(host, port, 0)
    except Exception as err:  # The callers that wait for the look-up raise the error.
        # The traceback would refer to this frame, the frame to the look-up, and the look-up to the error.
        lookup.err = err.with_traceback(None)
    finally:
        _end(lookup, owner, (host, port))


def _end(lookup: _Lookup, owner: str, key: tuple[str, int]) -> None:
    with _lock:
        del _lookups[owner][key]
        if not _lookups[owner]:
            del _lookups[owner]
    lookup.done.close()


def _getaddrinfo(host: str, port: int, flags: int) -> Sequence[Address]:
    # The function of the same name in `socket` handles each address in Python code. For thousands of addresses this
    # takes milliseconds, and look-ups do not use turns.
    return _socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[:MAX_ADDRESSES]
