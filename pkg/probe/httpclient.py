"""Send GET requests to untrusted servers: those of containers, for probes and hooks.

Go: net/http (client.go, transport.go, response.go, transfer.go), net/http/internal/chunked.go

The standard library's http.client trusts the server: it treats a chunk of size -1 as endless, and its timeouts restart
with each byte. Here every read and write ends with the context of the request, and everything that is stored has a
bound. Probes speak HTTP/2 with https servers that choose it, because some of these speak nothing else.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import H2Error

from pkg import golang
from pkg.golang import http, net
from pkg.probe import dialer, http2

# At most this many bytes of a response's body are read.
MAX_RESPONSE_BODY_LENGTH = 10 * 1024
# This is the maximum size of the status line and headers of a response, including those of its 1xx responses. Each line
# counts _LINE_COST bytes more, because even a short line takes a microsecond.
# DIVERGES (safer): in this kubelet, a probe or hook fails when its server sends more than MAX_RESPONSE_HEADER_BYTES of
# headers.
# Go: net/http/transport.go, (*persistConn).maxHeaderResponseSize: the Go kubelet accepts 10 MiB.
# Why: some hundred simultaneous probes would fill the memory; no server needs more.
# Test: httpclient_test.py:test_head_that_makes_no_sense
MAX_RESPONSE_HEADER_BYTES = 64 * 1024
_LINE_COST = 32
# At most this many chunks of a body are read, because each takes some microseconds, even if it has only one byte.
# DIVERGES (safer): this kubelet reads at most MAX_CHUNKS chunks of the response to a probe or hook.
# Go: net/http/internal/chunked.go, (*chunkedReader).Read: the Go kubelet has no bound.
# Why: a container that sends chunks of one byte would keep a processor busy.
# Test: httpclient_test.py:test_no_more_chunks_are_read_than_may_be
MAX_CHUNKS = 2048
MAX_REDIRECTS = 10
# Go has the same limits for the line before a chunk, for the trailer, and for the bytes that chunks have in addition to
# their data.
_MAX_CHUNK_LINE = 4096
_MAX_TRAILER = 4096
_MAX_CHUNK_OVERHEAD = 16 * 1024
_MAX_CHUNK_DIGITS = 16
_READ_SIZE = 4096
# Messages, which become events, show this many characters of a server's text or of a URL.
_MAX_SHOWN = 1024

# OpenSSL reports these errors for a response in plain HTTP.
_SPEAKS_PLAIN_HTTP = ("tls: wrong version number", "tls: http request")
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS_NEEDED = ("content-length", "location", "transfer-encoding")
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]*")
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_STATUS = re.compile("[0-9]{3}")
# Go's client leaves out these headers, because a request without a body does not need them.
_NOT_SENT = ("host", "content-length", "transfer-encoding", "trailer")
# HTTP/2 does not have these headers either.
_NOT_SENT_BY_HTTP2 = ("connection", "proxy-connection", "upgrade", "keep-alive")
_HTTP2 = "h2"
# A client can offer these protocols to https servers.
PROTOCOLS = (_HTTP2, "http/1.1")
# These characters of a path or query stay as they are. Others, such as spaces and umlauts, are escaped.
_PLAIN = "/%!$&'()*+,;=:@~?[]"

Headers = list[tuple[str, str]]
T = TypeVar("T")


class HTTPRequestError(OSError):
    """Signal that a request got no response. The text names the request and the reason.

    Go: url.Error
    """

    def __init__(self, url: str, cause: Exception | str) -> None:
        # The server chooses the target of a redirect, and so part of the reason, so both are truncated.
        super().__init__(f'Get "{_shown(url)}": {_reason(cause)[:_MAX_SHOWN]}')
        self.timeout = isinstance(cause, TimeoutError)


class HTTPResponseError(HTTPRequestError):
    """Signal that the server of an https URL speaks plain HTTP."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "http: server gave HTTP response to HTTPS client")


class Fault(NamedTuple):
    """Describe why a body broke off: the text of the error, and whether it was a timeout.

    Storing the error itself would keep the connection in memory: the error refers to the frames that it has passed, and
    the frame that reads the body would refer to the error. These, the connection, and the server's certificates in
    OpenSSL would stay until the garbage collector runs.
    """

    text: str
    timeout: bool


class Response(NamedTuple):
    """Hold a response with the beginning of its body."""

    status: int
    # `location` is the target of a redirect, or "" if the response does not redirect.
    location: str
    body: bytes
    # `fault` is the reason why the body broke off. It is None if the body is complete or was truncated at its limit.
    fault: Fault | None


def get(ctx: golang.Context, url: str, headers: Headers, protocols: tuple[str, ...] = ()) -> Response:
    """GET the URL, and follow redirects on the same host. Certificates are not verified.

    The node's proxy settings do not apply. https servers choose one of the protocols. The whole exchange ends with ctx.
    Return the first response whose redirect is not followed. Raise HTTPRequestError if there is no response, and
    dialer.NoSocketError.
    Go: http.Client.Do, with pkg/probe/http/http.go, RedirectChecker
    """
    first_host = net.split(url).hostname
    for _ in range(MAX_REDIRECTS):
        try:
            response = _round_trip(ctx, url, headers, protocols)
        except (OSError, EOFError, ValueError) as err:
            if str(err) in _SPEAKS_PLAIN_HTTP:
                raise HTTPResponseError(url) from err
            raise HTTPRequestError(url, err) from err
        if not response.location:
            return response
        try:
            location = net.split(response.location)
            target = net.join(url, response.location)
            if net.split(target).hostname != first_host:
                return response
        except ValueError as err:
            shown = _shown(response.location)
            raise HTTPRequestError(url, f'failed to parse Location header "{shown}": {err}') from err
        if location.netloc:
            headers = [(name, value) for name, value in headers if name.lower() != "host"]
        url = target
    raise HTTPRequestError(url, f"stopped after {MAX_REDIRECTS} redirects")


def _round_trip(ctx: golang.Context, url: str, headers: Headers, protocols: tuple[str, ...]) -> Response:
    """Make one request. Raise OSError, EOFError or ValueError if there is no response."""
    parts = net.split(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f'unsupported protocol scheme "{parts.scheme}"')
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = _new_request(parts.netloc, target, headers)
    with dialer.dialed(ctx, host, port) as sock:
        connection = dialer.Connection(ctx, sock)
        if parts.scheme == "https":
            # Loading OpenSSL takes time, so it is loaded only for such a probe or hook.
            from pkg.probe.tlsclient import TLSConnection

            connection = tls = TLSConnection(ctx, sock, host, protocols)
            if tls.protocol() == _HTTP2:
                return _round_trip_http2(tls, _http2_headers(request))
        connection.send(_encode(request))
        return _read_response(io.BufferedReader(connection, _READ_SIZE))


class _Request(NamedTuple):
    """Describe a GET request independently of the version of HTTP."""

    host: str
    path: str
    # `fields` are the headers other than Host.
    fields: Headers


def _new_request(host: str, target: str, headers: Headers) -> _Request:
    """Return the request. Raise ValueError for a header that cannot be sent."""
    host = next((value for name, value in headers if name.lower() == "host"), host)
    fields = [(name, value) for name, value in headers if name.lower() not in _NOT_SENT]
    for name, value in [("Host", host), *fields]:
        http.check_field(name, value)
    return _Request(host, quote(target.encode(errors="surrogateescape"), safe=_PLAIN), fields)


def _encode(request: _Request) -> bytes:
    """Return the request's bytes in HTTP/1.1."""
    fields = [("Host", request.host), *request.fields]
    lines = [f"GET {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode(errors="replace")


def _http2_headers(request: _Request) -> Headers:
    """Return the request's headers in HTTP/2, with the pseudo-headers first."""
    pseudo = [(":method", "GET"), (":scheme", "https"), (":path", request.path), (":authority", request.host)]
    fields = [(name.lower(), value) for name, value in request.fields if name.lower() not in _NOT_SENT_BY_HTTP2]
    return [(name, value.encode(errors="replace").decode()) for name, value in [*pseudo, *fields]]


def _round_trip_http2(connection: dialer.Connection, headers: Headers) -> Response:
    """Make one request over HTTP/2. Raise OSError, EOFError or ValueError if there is no response."""
    conn = http2.ClientConn(connection)
    try:
        conn.start()
        conn.send_headers(headers, end=True)
        events = _events(conn)
        fields = next(http2.text_of(event.headers) for event in events if isinstance(event, ResponseReceived))
    except H2Error as err:
        raise ValueError(f"http2: {err}") from err
    status = fields.get(":status", "")
    if not _STATUS.fullmatch(status):
        raise ValueError("malformed response from server: malformed non-numeric status pseudo header")
    body = bytearray()
    fault: Fault | None = None
    try:
        for event in events:
            if isinstance(event, DataReceived):
                body += event.data
            if isinstance(event, StreamEnded) or len(body) >= MAX_RESPONSE_BODY_LENGTH:
                break
    except http2.TooMuchError:
        pass  # The rest of the body is not read.
    except (OSError, EOFError, ValueError, H2Error) as err:
        fault = _fault_of(err)
    return _response(int(status), fields.get("location", ""), body, fault)


def _events(conn: http2.ClientConn) -> Iterator[Event]:
    """Yield the events from the server. Raise ConnectionResetError if the server resets the stream."""
    while True:
        for event in conn.receive():
            if isinstance(event, StreamReset):
                raise ConnectionResetError(f"stream error: {http2.code_name(event.error_code)}")
            yield event


def _response(status: int, location: str, body: bytearray, fault: Fault | None) -> Response:
    to_follow = location if status in _REDIRECTS else ""
    return Response(status, to_follow, bytes(body[:MAX_RESPONSE_BODY_LENGTH]), fault)


def _fault_of(err: Exception) -> Fault:
    return Fault(str(err) or type(err).__name__, isinstance(err, TimeoutError))


class _Head(NamedTuple):
    """Hold the status line of a response, and the values of the needed headers."""

    version: str
    status: int
    headers: dict[str, list[str]]


def _read_response(reader: io.BufferedReader) -> Response:
    head = _read_head(reader)
    pieces = _body(reader, head)
    body = bytearray()
    fault: Fault | None = None
    try:
        while len(body) < MAX_RESPONSE_BODY_LENGTH and (piece := next(pieces, b"")):
            body += piece
    except (OSError, EOFError, ValueError) as err:
        fault = _fault_of(err)
    return _response(head.status, head.headers.get("location", [""])[0], body, fault)


def _read_head(reader: io.BufferedReader) -> _Head:
    """Return the head of the response, skipping those of 1xx responses.

    Go: persistConn.readResponse
    """
    lines = _lines(reader, MAX_RESPONSE_HEADER_BYTES, _LINE_COST)
    while True:
        version, status = _parse_status_line(next(lines))
        headers = _read_headers(lines)
        # Status 101 ends the protocol, so what follows is not HTTP.
        if not 100 <= status < 200 or status == 101:
            return _Head(version, status, headers)


def _lines(reader: io.BufferedReader, budget: int, line_cost: int = 0) -> Iterator[str]:
    """Yield lines, without their line ends, up to a total of `budget` bytes. Each line counts `line_cost` bytes more.

    Raise EOFError at the end of the input, and ValueError beyond the budget.
    """
    limit, read = budget, 0
    while True:
        line = reader.readline(budget + 1)
        budget -= len(line) + line_cost
        if budget < 0:
            raise ValueError(f"net/http: server response headers exceeded {limit} bytes; aborted")
        if not line.endswith(b"\n"):
            raise EOFError("unexpected EOF" if read or line else "EOF")
        read += len(line)
        yield line.rstrip(b"\r\n").decode(errors="surrogateescape")


def _parse_status_line(line: str) -> tuple[str, int]:
    """Parse the status line. Raise ValueError.

    Go: http.ReadResponse
    """
    version, blank, rest = line.partition(" ")
    code = rest.lstrip(" ").partition(" ")[0]
    if not blank:
        raise _malformed("HTTP response", line)
    if not _STATUS.fullmatch(code):
        raise _malformed("HTTP status code", code)
    if not _VERSION.fullmatch(version):
        raise _malformed("HTTP version", version)
    return version, int(code)


def _malformed(what: str, text: str) -> ValueError:
    return ValueError(f'net/http: HTTP/1.x transport connection broken: malformed {what} "{_shown(text)}"')


def _read_headers(lines: Iterator[str]) -> dict[str, list[str]]:
    """Return the needed headers by their names in lower case.

    Go: textproto.Reader.ReadMIMEHeader
    """
    headers: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if not line:
            return headers
        if line[0] in " \t":
            # The line continues the previous header.
            if name in headers:
                headers[name][-1] = f"{headers[name][-1]} {line}".strip(" \t")
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise _malformed("MIME header line", line)
        name = name.lower()
        if name in _HEADERS_NEEDED:
            headers.setdefault(name, []).append(value.strip(" \t"))
    raise AssertionError("unreachable: the lines end with an exception")


def _body(reader: io.BufferedReader, head: _Head) -> Iterator[bytes]:
    """Return the pieces of the body.

    Reading them raises OSError, EOFError or ValueError where the body breaks off.

    Go: readTransfer, fixLength
    """
    if 100 <= head.status < 200 or head.status in (204, 304):
        return iter(())
    codings = head.headers.get("transfer-encoding", []) if head.version != "HTTP/1.0" else []
    if len(codings) > 1:
        raise ValueError("too many transfer encodings")
    if codings:
        if codings[0].lower() != "chunked":
            raise ValueError(f'unsupported transfer encoding: "{_shown(codings[0])}"')
        return _chunked(reader)
    lengths = head.headers.get("content-length", [])
    if not lengths:
        return iter(functools.partial(reader.read1, _READ_SIZE), b"")
    if len(set(lengths)) > 1:
        raise ValueError("http: message cannot contain multiple Content-Length headers")
    if not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) < 19):
        raise ValueError(f'bad Content-Length "{_shown(lengths[0])}"')
    return _exactly(reader, int(lengths[0]))


def _exactly(reader: io.BufferedReader, length: int) -> Iterator[bytes]:
    """Yield `length` bytes in pieces."""
    while length:
        piece = reader.read1(min(length, _READ_SIZE))
        if not piece:
            raise EOFError("unexpected EOF")
        length -= len(piece)
        yield piece


def _chunked(reader: io.BufferedReader) -> Iterator[bytes]:
    """Yield the data of the first MAX_CHUNKS chunks in pieces.

    Go: chunkedReader
    """
    overhead = 0
    for _ in range(MAX_CHUNKS):
        line = _chunk_line(reader)
        length = _chunk_length(line)
        overhead = max(0, overhead + len(line) + 2 - 16 - 2 * length)
        if overhead > _MAX_CHUNK_OVERHEAD:
            raise ValueError("chunked encoding contains too much non-data")
        if length == 0:
            _skip_trailer(reader)
            return
        yield from _exactly(reader, length)
        if _chunk_line(reader) != b"\r\n":
            raise ValueError("malformed chunked encoding")


def _skip_trailer(reader: io.BufferedReader) -> None:
    """Read up to the end of the response.

    Go: body.readTrailer
    """
    try:
        for line in _lines(reader, _MAX_TRAILER):
            if not line:
                return
    except EOFError:
        raise EOFError("http: unexpected EOF reading trailer") from None
    except ValueError:
        raise ValueError("http: suspiciously long trailer after chunked body") from None


def _chunk_line(reader: io.BufferedReader) -> bytes:
    line = reader.readline(_MAX_CHUNK_LINE)
    if not line.endswith(b"\n"):
        raise ValueError("header line too long") if len(line) == _MAX_CHUNK_LINE else EOFError("unexpected EOF")
    return line


def _chunk_length(line: bytes) -> int:
    """Parse the length of a chunk. Raise ValueError.

    `int` alone would accept a sign, spaces and underscores.
    """
    digits = line.rstrip(b" \t\r\n").partition(b";")[0]
    if not _HEXADECIMAL.fullmatch(digits):
        raise ValueError("invalid byte in chunk length")
    if len(digits) > _MAX_CHUNK_DIGITS:
        raise ValueError("http chunk length too large")
    return int(digits or b"0", 16)


def _shown(text: str) -> str:
    """Return the text for messages: a server's data may be unprintable and long."""
    return golang.printable(text[:_MAX_SHOWN])


def _reason(err: Exception | str) -> str:
    """Return the reason for an error, with the text of Go's client for system errors."""
    if isinstance(err, OSError) and err.errno is not None and err.errno in errno.errorcode:
        return os.strerror(err.errno).lower()
    return str(err) or type(err).__name__
