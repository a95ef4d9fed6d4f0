"""The head of a request or a response: its first line and its fields.

Go: net/http/request.go (readRequest), net/http/response.go (ReadResponse), net/textproto/reader.go

Written here, for what parses a head meets bytes of anybody, before it is known who they are: every expression below
takes time in proportion to what it reads. Those of `h11` do not, nor do those of Python's `email`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pkg.golang.http.headers import Headers

# What Go takes: a mebibyte, and what its reader holds beside that. `kubectl exec` puts whole scripts into the target.
MAX_HEAD_BYTES = (1 << 20) + (4 << 10)
# Each field costs far more memory and time than its bytes.
MAX_HEADER_FIELDS = 1000
# Of the fields that are taken apart at their commas, each: names of two letters take twenty times their bytes then, and
# eight times the time of other bytes. A token may be among the subprotocols of a WebSocket.
MAX_LIST_BYTES = 16 << 10
_LISTS = ("Accept", "Accept-Encoding", "Connection", "Expect", "Sec-WebSocket-Protocol")

_METHOD = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]{1,64}")
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_TARGET = re.compile(r"[\x21-\x7e]+")
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_STATUS_LINE = re.compile(r"(HTTP/1\.[01]) ([1-9][0-9]{2})(?: (.*))?")
# What ends a head, with the end of its last line.
HEAD_END = re.compile(rb"\n\r?\n")
# Nothing of a head has these, once its lines are split.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_MAX_LENGTH_DIGITS = 18


class MalformedError(Exception):
    """What came is not the head of a message. `status` answers a request whose head it should have been."""

    def __init__(self, status: int) -> None:
        super().__init__(f"malformed HTTP: {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """The head of one request. `content_length` is None for a body in chunks."""

    method: str
    target: str
    headers: Headers
    keeps_alive: bool
    """Whether another request may follow on the connection."""
    content_length: int | None
    chunks: bool
    """Whether the client reads an answer in chunks."""
    expects_continue: bool
    """Whether the client waits to be told that its body is wanted."""


def parse_head(data: bytes | bytearray) -> Head:
    """Parse what comes up to the blank line, and with it. Raises MalformedError.

    DIVERGES (safer): a head with a field that goes on in the next line, or with a method of more than 64 letters, is
    refused.
    Go: net/textproto/reader.go, (*Reader).ReadMIMEHeader: such a field is joined, and a method may have any length.
    Why: proxies read such fields in different ways (RFC 9112 has them refused), which lets a client hide one request in
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
    """The head of one response. `content_length` is None for a body in chunks."""

    status: int
    reason: str
    headers: Headers
    content_length: int | None
    until_end: bool
    """Whether the body ends with the connection; then it has no length."""


def parse_response_head(data: bytes | bytearray) -> ResponseHead:
    """Parse what comes up to the blank line, and with it. Raises MalformedError.

    A field that goes on in the next line is refused, as in a request.
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
    """The first line, and the fields."""
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
    """How long the body is; None for one in chunks. Go: net/http/transfer.go (parseTransferEncoding, fixLength)"""
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
