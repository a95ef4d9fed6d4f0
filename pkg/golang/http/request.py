"""A request, as handlers see it.

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
# What comes before the path in `GET http://host/path HTTP/1.1`.
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
# So many parameters make a query that is no query.
MAX_PARAMETERS = 1000
# Four times what the name of a file can have; only a query may be long.
MAX_PATH_BYTES = 16 << 10


class BadRequest(Exception):
    """What came is not a request."""


class Body:
    """What follows the head, read only when asked for. Used by the thread that serves the request."""

    __slots__ = ("_left", "_next", "_over", "_rest")

    def __init__(self, next_part: Callable[[], bytes], limit: int) -> None:
        """`next_part` returns what came next, b"" at the end; it may raise ClientGone or BadRequest."""
        self._next = next_part
        self._left = limit
        self._rest = b""
        self._over = False

    def read(self, n: int = -1) -> bytes:
        """At most n bytes, all that is left without n; b"" at the end.

        Raises HTTPError 413 when more comes than the server takes, ClientGone when there is nobody to read from.
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
        """Say whose request it is, and of which kind. Raises HTTPError 429 when the user has too many."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One request; belongs to the thread that serves it, `ctx` may be handed on."""

    method: str
    target: str
    """As it was sent."""
    path: str
    """Without its percent signs; may still have `..` and doubled slashes in it unless a ServeMux led here."""
    headers: Headers
    body: Body
    remote_addr: tuple[str, int] | None
    """None on a unix socket."""
    peer_certificates: list[bytes]
    """DER, the client's own first. NOT verified: whoever trusts them has to."""
    tls: bool
    ctx: golang.Context
    """Ends when the client has gone, the handler has returned or the server closes."""
    admit: Admit = _no_need
    """To be called once it is known who asks; until then the connection may have to make way for others."""
    pattern: str = ""
    """The pattern by which a ServeMux found the handler."""
    path_values: dict[str, str] = field(default_factory=dict)
    """What stood in the places that the pattern names."""
    _query: dict[str, list[str]] | None = field(default=None, init=False, repr=False)

    @property
    def query(self) -> dict[str, list[str]]:
        """The parameters; parsed when first asked for, for it takes time. Raises BadRequest."""
        if self._query is None:
            self._query = _parse_query(self.raw_query)
        return self._query

    def param(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    @property
    def raw_query(self) -> str:
        """The query as it was sent, without its question mark."""
        return self.target.partition("?")[2]


def parse_path(target: str) -> str:
    """The path of a request's target. Raises BadRequest, or HTTPError 414."""
    end = target.find("?")
    if (len(target) if end < 0 else end) > MAX_PATH_BYTES:
        # DIVERGES (safer): a longer path is answered with 414.
        # Go: net/http/request.go, readRequest: has no bound below that of the whole head.
        # Why: the look-up of the handler and a redirect would take as much memory again, of clients without credentials
        # too.
        # Test: hostile_test.py:test_nothing_that_is_sent_takes_long_to_read
        raise HTTPError(414, "414 Request URI Too Long")
    raw = target if end < 0 else target[:end]
    raw = raw[match.end() :] if (match := _ABSOLUTE.match(raw)) else raw
    if _BAD_ESCAPE.search(raw):
        raise BadRequest(f"invalid URL escape in {raw!r}")
    path = unquote(raw) or "/"
    # DIVERGES (safer): a path with a NUL is answered with 400.
    # Go: net/http/request.go, readRequest: it is handed on to the handlers.
    # Why: no file has such a name, and Python's file functions raise another exception for it than for other names that
    # nothing has.
    # Test: server_test.py:test_bad_requests
    if "\0" in path or not path.startswith("/"):
        raise BadRequest(f"invalid request target {raw!r}")
    return path


def _parse_query(raw: str) -> dict[str, list[str]]:
    """Raises BadRequest."""
    try:
        return parse_qs(raw, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError as err:
        raise BadRequest("too many query parameters") from err
