"""Parse the head of a request or a response: its first line and its fields.

Go: net/http/request.go (readRequest), net/http/response.go (ReadResponse), net/textproto/reader.go

This parser reads bytes from anybody, before the client is authenticated. So every expression below takes time
proportional to its input. Those of `h11` and of Python's `email` do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pkg.golang.http.headers import Headers

# Go has the same limit: 1 MiB plus the buffer of Go's reader. `kubectl exec` puts whole scripts into the target.
MAX_HEAD_BYTES = (1 << 20) + (4 << 10)
# Each field costs far more memory and time than its bytes suggest.
MAX_HEADER_FIELDS = 1000
# This limit holds for each field that is split at its commas. Splitting names of two letters takes twenty times their
# bytes, and eight times the time of other bytes. The subprotocols of a WebSocket may include a token.
MAX_LIST_BYTES = 16 << 10
_LISTS = ("Accept", "Accept-Encoding", "Connection", "Expect", "Sec-WebSocket-Protocol")

_METHOD = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]{1,64}")
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_TARGET = re.compile(r"[\x21-\x7e]+")
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_STATUS_LINE = re.compile(r"(HTTP/1\.[01]) ([1-9][0-9]{2})(?: (.*))?")
# The pattern matches the blank line that ends a head, and the end of the line before it.
HEAD_END = re.compile(rb"\n\r?\n")
# No head may contain these characters, once its lines are split.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_MAX_LENGTH_DIGITS = 18


class MalformedError(Exception):
    """Signal that the input is not the head of a message. The server responds to such a request with `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"malformed HTTP: {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """Describe the head of one request. `content_length` is None for a chunked body."""

    method: str
    target: str
    headers: Headers
    keeps_alive: bool
    """This field says whether another request may follow on the connection."""
    content_length: int | None
    chunks: bool
    """This field says whether the client accepts a chunked response."""
    expects_continue: bool
    """This field says whether the client waits for "100 Continue" before it sends the body."""


def parse_head(data: bytes | bytearray) -> Head:
    """Parse the data up to the blank line, inclusive. Raise MalformedError.

    DIVERGES (safer): this kubelet refuses a head with a field that continues on the next line, or with a method of more
    than 64 letters.
    Go: net/textproto/reader.go, (*Reader).ReadMIMEHeader: the Go kubelet joins such a field, and accepts methods of any
    length.
    Why: proxies read such fields in different ways (RFC 9112 requires refusal), which lets a client hide one request in
    another.
    Test: head_test.py:test_heads_that_go_takes_are_refused
    """
    first, headers = _parse(data)
    method, target, version = _request_line(first)
    if version == "HTTP/1.1" and len(headers.get_all("Host")) != 1:
        raise MalformedError(400)
    if any(sum(map(len, headers.get_all(name))) > MAX_LIST_BYTES for name in _LISTS):
        raise MalformedError(431)
    return Head(
        method=method,
        target=target,
        headers=headers,
        keeps_alive=version == "HTTP/1.1" and not headers.has_token("Connection", "close"),
        content_length=_content_length(headers, version),
        chunks=version == "HTTP/1.1",
        expects_continue=version == "HTTP/1.1" and headers.has_token("Expect", "100-continue"),
    )


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Describe the head of one response. `content_length` is None for a chunked body."""

    status: int
    reason: str
    headers: Headers
    content_length: int | None
    until_end: bool
    """This field says whether the end of the connection ends the body, which then has no length."""


def parse_response_head(data: bytes | bytearray) -> ResponseHead:
    """Parse the data up to the blank line, inclusive. Raise MalformedError.

    As in a request, a field that continues on the next line is refused.
    """
    first, headers = _parse(data)
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise MalformedError(400)
    version, status, reason = match[1], int(match[2]), match[3] or ""
    has_body = status >= 200 and status not in (204, 304)
    return ResponseHead(
        status=status,
        reason=reason,
        headers=headers,
        content_length=_content_length(headers, version) if has_body else 0,
        until_end=has_body and not ("Content-Length" in headers or "Transfer-Encoding" in headers),
    )


def _parse(data: bytes | bytearray) -> tuple[str, Headers]:
    """Return the first line and the fields."""
    text = data.decode("latin-1").replace("\r\n", "\n")
    if text.count("\n") > MAX_HEADER_FIELDS + 2:
        raise MalformedError(431)
    if _CONTROL.search(text):
        raise MalformedError(400)
    first, *lines = text[:-2].split("\n")
    return first, Headers(_field(line) for line in lines)


def _request_line(line: str) -> tuple[str, str, str]:
    parts = line.split(" ", 3)
    if len(parts) != 3:
        raise MalformedError(400)
    method, target, version = parts
    if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target) and _VERSION.fullmatch(version)):
        raise MalformedError(400)
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise MalformedError(505)
    return method, target, version


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise MalformedError(400)
    return name, value.strip(" \t")


def _content_length(headers: Headers, version: str) -> int | None:
    """Return the length of the body, or None if it is chunked.

    Go: net/http/transfer.go (parseTransferEncoding, fixLength)
    """
    codings = headers.get_all("Transfer-Encoding")
    if codings and version == "HTTP/1.1":
        if len(codings) != 1 or codings[0].lower() != "chunked":
            raise MalformedError(501)
        return None
    lengths = set(headers.get_all("Content-Length"))
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdigit()) or len(length) > _MAX_LENGTH_DIGITS:
        raise MalformedError(400)
    return int(length)
