"""Encode and decode the bodies of requests and responses.

Go: net/http/transfer.go, net/http/internal/chunked.go
"""

from __future__ import annotations

import re
import time

from pkg.golang.http.conn import Conn
from pkg.golang.http.head import Head
from pkg.golang.http.headers import Headers
from pkg.golang.http.request import BadRequest
from pkg.golang.http.response import ClientGone
from pkg.golang.http.status import status_text

# At most this many bytes of a body are passed on at once.
_PART = 1 << 16
# These constants limit the line before a chunk, and the fields after the last chunk.
MAX_CHUNK_LINE_BYTES = 4 << 10
MAX_TRAILER_LINES = 100
# The lines of chunks may exceed what they carry by this many bytes.
MAX_CHUNK_OVERHEAD_BYTES = 16 << 10
_CHUNK_OVERHEAD = 16
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_LINE_BREAK = re.compile(r"[\r\n\0]")


class Source:
    """Hold the bytes that have arrived on a connection and were not used yet."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self.received = bytearray()

    def more(self) -> bool:
        """Wait for more bytes; return False if the peer has ended. Raise OSError."""
        data = self.conn.recv(_PART)
        self.received += data
        return bool(data)


class MessageBody:
    """Extract the body of one request or response from the received bytes. The class is not thread-safe."""

    def __init__(self, content_length: int | None, source: Source) -> None:
        """Create the body; `content_length` is None for a chunked one."""
        self._source = source
        self._left = content_length or 0
        self.chunked = content_length is None
        self.ended = not self.chunked and self._left == 0
        self._excess = 0

    def next_part(self) -> bytes:
        """Return the next part, or b"" at the end. Raise BadRequest or OSError."""
        if self.ended:
            return b""
        if self.chunked and not self._left and not self._next_chunk():
            return b""
        if not self._source.received:
            self._more()
        part = bytes(self._source.received[: min(self._left, _PART)])
        self._take(len(part))
        self._left -= len(part)
        if self.chunked:
            if not self._left and self._line():
                raise BadRequest("malformed chunked encoding")
        else:
            self.ended = not self._left
        return part

    def _next_chunk(self) -> bool:
        """Read the line of the next chunk; return False if it was the last chunk."""
        line = self._line()
        size = line.partition(b";")[0].strip(b" \t")
        if not _SIZE.fullmatch(size):
            raise BadRequest("invalid chunk size")
        self._left = int(size, 16)
        self._excess = max(self._excess + len(line) + 2 - _CHUNK_OVERHEAD - 2 * self._left, 0)
        if self._excess > MAX_CHUNK_OVERHEAD_BYTES:
            raise BadRequest("chunked encoding contains too much non-data")
        if self._left:
            return True
        for _ in range(MAX_TRAILER_LINES):
            if not self._line():
                self.ended = True
                return False
        raise BadRequest("too many trailers")

    def _line(self) -> bytes:
        """Return the next line without its line break."""
        while (end := self._source.received.find(b"\n", 0, MAX_CHUNK_LINE_BYTES)) < 0:
            if len(self._source.received) >= MAX_CHUNK_LINE_BYTES:
                raise BadRequest("chunk header line too long")
            self._more()
        line = bytes(self._source.received[:end])
        self._take(end + 1)
        return line.removesuffix(b"\r")

    def _take(self, count: int) -> None:
        del self._source.received[:count]

    def _more(self) -> None:
        if not self._source.more():
            raise BadRequest("unexpected end of the body")


class ResponseFrame:
    """Encode one response, with a Content-Length or in chunks. One thread at a time may use it."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._chunked = False
        # `_left` counts the missing bytes of a body with an announced length.
        self._left: int | None = None
        self.keeps_alive = head.keeps_alive
        """This field says whether the client can detect the end of the response.

        The field is final once the response has started.
        """

    def start(self, status: int, headers: Headers) -> bytes:
        """Return the bytes of the response's head."""
        fields = [*headers.items()]
        if "Date" not in headers:
            fields.append(("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())))
        if self._head.method == "HEAD" or status in (204, 304):
            self._left = 0
        elif "Content-Length" in headers:
            self._left = int(headers.get("Content-Length"))
        elif self._head.chunks:
            self._chunked = True
            fields.append(("Transfer-Encoding", "chunked"))
        else:
            self.keeps_alive = False
        self.keeps_alive &= not headers.has_token("Connection", "close")
        if not self.keeps_alive and "Connection" not in headers:
            fields.append(("Connection", "close"))
        lines = [f"HTTP/1.1 {status} {status_text(status)}", *(_field(name, value) for name, value in fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def data(self, data: bytes | memoryview) -> bytes | memoryview:
        """Encode a part of the body. Raise ClientGone if the body exceeds the announced length.

        The client must not get a response that looks complete.
        """
        if not data:
            return b""
        if self._chunked:
            return b"".join((b"%x\r\n" % len(data), data, b"\r\n"))
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ClientGone("wrote more than the declared Content-Length")
        return data

    def end(self) -> bytes:
        """Return the end of the body. Raise ClientGone if the body is shorter than announced."""
        if self._left:
            raise ClientGone(f"wrote {self._left} bytes less than the declared Content-Length")
        return b"0\r\n\r\n" if self._chunked else b""


def _field(name: str, value: str) -> str:
    """Return the header line; line breaks in the value become spaces."""
    return f"{name}: {_LINE_BREAK.sub(' ', value)}"
