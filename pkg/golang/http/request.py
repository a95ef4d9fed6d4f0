"""Describe a request for its handler.

Go: net/http/request.go
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qs, unquote

from pkg import golang
from pkg.golang.http.headers import Headers
from pkg.golang.http.response import HTTPError

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# The pattern matches the part before the path in `GET http://host/path HTTP/1.1`.
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
# The server refuses a query with more parameters.
MAX_PARAMETERS = 1000
# This limit is four times the longest file path. Only the query may be longer.
MAX_PATH_BYTES = 16 << 10


class BadRequest(Exception):
    """Signal that the input is not a valid request."""


class Body:
    """Read the bytes after the head, on demand. Only the thread that serves the request may use it."""

    __slots__ = ("_left", "_next", "_over", "_rest")

    def __init__(self, next_part: Callable[[], bytes], limit: int) -> None:
        """Create the body.

        `next_part` returns the next bytes, or b"" at the end. It may raise ClientGone or BadRequest.
        """
        self._next = next_part
        self._left = limit
        self._rest = b""
        self._over = False

    def read(self, n: int = -1) -> bytes:
        """Return at most n bytes, or all remaining bytes without n; b"" at the end.

        Raise HTTPError 413 if the body exceeds the server's limit, and ClientGone if the client has disconnected.
        """
        parts = [self._rest] if self._rest else []
        have = len(self._rest)
        while not self._over and (n < 0 or have < n):
            part = self._next()
            self._over = not part
            self._left -= len(part)
            if self._left < 0:
                raise HTTPError(413, "http: request body too large")
            parts.append(part)
            have += len(part)
        data = b"".join(parts)
        if n < 0:
            n = have
        self._rest = data[n:]
        return data[:n]


def _no_need(user: str, kind: str, *, lasting: bool) -> None:
    pass


class Admit(Protocol):
    def __call__(self, user: str, kind: str, *, lasting: bool) -> None:
        """Record the user and the kind of the request. Raise HTTPError 429 if the user has too many requests."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """Describe one request. It belongs to the thread that serves it; other threads may use `ctx`."""

    method: str
    target: str
    """This is the target as it was sent."""
    path: str
    """This is the percent-decoded path. It may contain `..` and double slashes unless a ServeMux chose the handler."""
    headers: Headers
    body: Body
    remote_addr: tuple[str, int] | None
    """The value is None on a unix socket."""
    peer_certificates: list[bytes]
    """The certificates are in DER, the client's own first.

    They are NOT verified: code that trusts them must verify them.
    """
    tls: bool
    ctx: golang.Context
    """The context is cancelled when the client disconnects, the handler returns or the server closes."""
    admit: Admit = _no_need
    """The handler calls this once it knows the user; until then the server may evict the connection."""
    pattern: str = ""
    """This is the pattern by which a ServeMux found the handler."""
    path_values: dict[str, str] = field(default_factory=dict)
    """These are the parts of the path at the places that the pattern names."""
    _query: dict[str, list[str]] | None = field(default=None, init=False, repr=False)

    @property
    def query(self) -> dict[str, list[str]]:
        """Return the parameters. They are parsed on first use, because that takes time. Raise BadRequest."""
        if self._query is None:
            self._query = _parse_query(self.raw_query)
        return self._query

    def param(self, name: str, default: str = "") -> str:
        """Return the first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    @property
    def raw_query(self) -> str:
        """Return the query as it was sent, without its question mark."""
        return self.target.partition("?")[2]


def parse_path(target: str) -> str:
    """Return the path of a request's target. Raise BadRequest, or HTTPError 414."""
    end = target.find("?")
    if (len(target) if end < 0 else end) > MAX_PATH_BYTES:
        # DIVERGES (safer): this kubelet responds with 414 for a path of more than MAX_PATH_BYTES.
        # Go: net/http/request.go, readRequest: the Go kubelet bounds only the whole head.
        # Why: finding the handler and redirecting would take as much memory again, also for clients without
        # credentials.
        # Test: hostile_test.py:test_nothing_that_is_sent_takes_long_to_read
        raise HTTPError(414, "414 Request URI Too Long")
    raw = target if end < 0 else target[:end]
    raw = raw[match.end() :] if (match := _ABSOLUTE.match(raw)) else raw
    if _BAD_ESCAPE.search(raw):
        raise BadRequest(f"invalid URL escape in {raw!r}")
    path = unquote(raw) or "/"
    # DIVERGES (safer): this kubelet responds with 400 for a path with a NUL character.
    # Go: net/http/request.go, readRequest: the Go kubelet passes such a path to the handlers.
    # Why: no file has such a name, and Python's file functions raise a different exception for it than for other
    # missing names.
    # Test: server_test.py:test_bad_requests
    if "\0" in path or not path.startswith("/"):
        raise BadRequest(f"invalid request target {raw!r}")
    return path


def _parse_query(raw: str) -> dict[str, list[str]]:
    """Parse a query. Raise BadRequest if it has too many parameters."""
    try:
        return parse_qs(raw, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError as err:
        raise BadRequest("too many query parameters") from err
