"""When to ask again.

Go: k8s.io/client-go/rest/with_retry.go
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from typing import Protocol

from pkg import golang
from pkg.apimachinery.util.net import util as utilnet
from pkg.client_go import transport

MAX_RETRIES = 10

# Seconds, however long the server wants to be left alone.
MAX_RETRY_AFTER = 60

# Seconds to wait after a connection was cut.
_AFTER_CUT = 1

_DIGITS = 10

# How the end of a connection is told of. ConnectionAbortedError is what those see whose connection we have closed.
_CUT = (
    ConnectionAbortedError,
    BrokenPipeError,
    http.client.RemoteDisconnected,
    http.client.IncompleteRead,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
    transport.ConnectionLostError,
)


class Headers(Protocol):
    def get(self, name: str, /) -> str | None: ...


@dataclass(slots=True)
class WithRetry:
    """The tries of one request."""

    max_retries: int = MAX_RETRIES
    attempts: int = 0
    previous: Exception | None = None
    """Why the last try was repeated, if it was because of an error."""

    def after_error(self, verb: str, err: Exception) -> int | None:
        """Seconds after which to try again; None if the error is final. Only reads are repeated."""
        self.attempts += 1
        if self.attempts > self.max_retries or verb != "GET" or not is_cut(err):
            return None
        # Without its frames, one of which has this object.
        self.previous = golang.without_frames(err)
        return _AFTER_CUT

    def after_response(self, code: int, headers: Headers) -> int | None:
        """Seconds after which the server wants to be asked again; None if the answer is final."""
        self.attempts += 1
        if self.attempts > self.max_retries or (code != 429 and code < 500):
            return None
        return retry_after_seconds(headers)


def retry_after_seconds(headers: Headers) -> int | None:
    """None without the header, or if it holds no number of seconds; never more than MAX_RETRY_AFTER.

    DIVERGES (safer): a server that asks for a longer pause is asked again after MAX_RETRY_AFTER.
    Go: k8s.io/client-go/rest/with_retry.go, (*withRetry).IsNextRetry: has no bound.
    Why: a proxy or a server with a fault could keep the kubelet from its API server for a year.
    Test: answers_test.py:test_retry_after
    """
    value = headers.get("Retry-After") or ""
    if not (value.isascii() and value.isdigit()):
        return None
    # Longer numbers are not read, for Python refuses those of more than some thousand digits.
    return min(int(value), MAX_RETRY_AFTER) if len(value) < _DIGITS else MAX_RETRY_AFTER


def is_cut(err: BaseException) -> bool:
    """Whether the connection was reset, closed before the answer was complete, or dead."""
    return any(isinstance(e, _CUT) for e in (err, err.__cause__)) or utilnet.is_connection_reset(err)
