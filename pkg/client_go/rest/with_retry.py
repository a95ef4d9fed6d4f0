"""Decide whether and when to repeat a request.

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

# `MAX_RETRY_AFTER` is the longest pause, in seconds, that a server's Retry-After header can cause.
MAX_RETRY_AFTER = 60

# `_AFTER_CUT` is the pause, in seconds, after a connection was cut.
_AFTER_CUT = 1

_DIGITS = 10

# `_CUT` holds the exceptions that report the end of a connection. A thread gets ConnectionAbortedError if another
# thread has closed its connection.
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
    """Count the attempts of one request."""

    max_retries: int = MAX_RETRIES
    attempts: int = 0
    previous: Exception | None = None
    """`previous` is the error that caused the last retry, if an error caused it."""

    def after_error(self, verb: str, err: Exception) -> int | None:
        """Return the delay, in seconds, before the next attempt, or None if the error is final.

        Only GET requests are repeated.
        """
        self.attempts += 1
        if self.attempts > self.max_retries or verb != "GET" or not is_cut(err):
            return None
        # The traceback is dropped because one of its frames refers to this object.
        self.previous = golang.without_frames(err)
        return _AFTER_CUT

    def after_response(self, code: int, headers: Headers) -> int | None:
        """Return the delay, in seconds, before the next attempt, or None if the response is final."""
        self.attempts += 1
        if self.attempts > self.max_retries or (code != 429 and code < 500):
            return None
        return retry_after_seconds(headers)


def retry_after_seconds(headers: Headers) -> int | None:
    """Return the seconds in the Retry-After header, at most MAX_RETRY_AFTER.

    Return None without the header, or if its value is not a number.

    DIVERGES (safer): the client repeats a request after MAX_RETRY_AFTER even if the server asks for a longer pause.
    Go: k8s.io/client-go/rest/with_retry.go, (*withRetry).IsNextRetry: the Go kubelet has no bound.
    Why: a faulty proxy or server could keep the kubelet from its API server for a year.
    Test: answers_test.py:test_retry_after
    """
    value = headers.get("Retry-After") or ""
    if not (value.isascii() and value.isdigit()):
        return None
    # Longer numbers are not parsed, because Python refuses numbers of more than some thousand digits.
    return min(int(value), MAX_RETRY_AFTER) if len(value) < _DIGITS else MAX_RETRY_AFTER


def is_cut(err: BaseException) -> bool:
    """Report whether the connection was reset, closed before the response was complete, or lost."""
    return any(isinstance(e, _CUT) for e in (err, err.__cause__)) or utilnet.is_connection_reset(err)
