"""Look up the addresses of a name, and wait for them no longer than the caller's context lasts.

The system's resolver, getaddrinfo, cannot be ended, and may wait for a dead name server for minutes. It runs on a
thread of its own, so that a name whose look-up hangs holds up nobody but those who ask for it, and them until their
time is over.

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

# Names that are looked up at the same time for one owner: a pod, or the kubelet itself.
MAX_LOOKUPS_PER_OWNER = 4
# Those for all pods together, also for pods that have gone while the resolver hangs.
MAX_LOOKUPS_OF_PODS = 256
# Characters of a name, with the dot at its end.
MAX_NAME_LENGTH = 254
# Addresses of a name that are kept. An answer of a name server, whose owner may have the pod too, has room for four
# thousand. To connect to one that nobody can reach, one of multicast for example, fails at once, and the next follows.
# DIVERGES (safer): of the addresses of a name the first MAX_ADDRESSES are tried.
# Go: net/dial.go, (*sysDialer).dialSerial: tries all.
# Why: a probe would have its turn, of which there are four, for a fifth of a second, and others would come too late.
# Test: lookup_test.py:test_of_a_name_with_addresses_without_end_the_first_are_tried
MAX_ADDRESSES = 64
IO_TIMEOUT = "i/o timeout"
_OWNER = object()
_KUBELET = ""

# (family, type, protocol, canonical name, address), as getaddrinfo gives them.
Address = tuple[int, int, int, str, Any]


class DialTimeoutError(TimeoutError):
    """The time is over before there is a connection."""


def with_owner(ctx: golang.Context, owner: str) -> golang.Context:
    """A context whose look-ups count as those of the pod `owner`, and not as the kubelet's own."""
    return golang.with_value(ctx, _OWNER, owner)


def lookup_host(ctx: golang.Context, host: str, port: int) -> Sequence[Address]:
    """The host's addresses for a TCP connection, at least one. Thread-safe.

    Raises OSError, DialTimeoutError and ConnectionAbortedError for the end of ctx among them, and UnicodeError for what
    can be no name. Beyond ctx the look-up goes on. So that these threads have a bound, an owner with too many
    look-ups under way gets another only when one of them ends.
    """
    if len(host) > MAX_NAME_LENGTH:
        # Python would encode it first, which takes the square of its length.
        raise OSError("no such host")
    try:
        return _getaddrinfo(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # It is a name.
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
            # The error has this frame: together they would stay, with all who called, until garbage is collected.
            del lookup
    return lookup.found


def raise_if_canceled(ctx: golang.Context) -> None:
    """Raises ConnectionAbortedError when ctx is cancelled, in the words of Go's dialer."""
    if isinstance(ctx.err(), golang.Canceled):
        raise ConnectionAbortedError("operation was canceled")


@dataclass(slots=True)
class _Lookup:
    """One look-up under way; all who ask for the same wait for it."""

    done: golang.Channel[None] = field(default_factory=golang.Channel)
    found: Sequence[Address] = ()
    err: Exception | None = None


_lock = threading.Lock()  # guards _lookups
# The look-ups under way, by owner and then by host and port.
_lookups: dict[str, dict[tuple[str, int], _Lookup]] = {}


def _share_lookup(owner: str, host: str, port: int) -> tuple[_Lookup | None, list[golang.Channel[None]]]:
    """The look-up under way for the same, or a new one, and its end.

    None while the owner has too many, and the ends of these. Raises OSError when the pods have too many.
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
        # Those who wait are told, and ask again later.
        lookup.err = OSError(errno.ENOMEM, str(err))
        _end(lookup, owner, key)
    return lookup, [lookup.done]


def _check_bound_locked(owner: str) -> None:
    pods = sum(len(under_way) for each, under_way in _lookups.items() if each)
    if owner and pods >= MAX_LOOKUPS_OF_PODS:
        # Other pods may take the room: this is a want of the node, as of memory, and says nothing of the host.
        raise OSError(errno.ENOBUFS, f"{pods} look-ups of pods are under way")


def _run(lookup: _Lookup, owner: str, host: str, port: int) -> None:
    try:
        lookup.found = _getaddrinfo(host, port, 0)
    except Exception as err:  # Who waits for the look-up raises it.
        # Without this frame, which has the look-up, which has the error.
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
    # The function of the same name in `socket` has each address pass through some lines of Python. For thousands of
    # addresses this takes milliseconds, and look-ups take no turns.
    return _socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[:MAX_ADDRESSES]
