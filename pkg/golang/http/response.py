"""Write the response to a request.

Go: net/http/server.go (ResponseWriter, Error)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pkg.golang.http.conn import Conn
from pkg.golang.http.headers import Headers

if TYPE_CHECKING:
    from pkg.golang.http.request import Request

# A response of at most this many bytes that was not flushed gets a Content-Length instead of chunks.
_BUFFER = 2048
# At most this many bytes of a larger body are copied at once. If a client does not read, its copies stay in memory
# meanwhile.
_PART = 1 << 16
_SNIFFED = 512
# These bytes do not occur in text.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


class HTTPError(Exception):
    """Signal the status and text of an error response. A handler may raise it only before it has written anything."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ClientGone(ConnectionError):
    """Signal that the response can no longer be delivered. Nothing in this process is at fault."""


class Transport(Protocol):
    """Define how a ResponseWriter sends a response to the client. All methods may raise ClientGone."""

    def start(self, status: int, headers: Headers, first: bytes) -> None:
        """Send the head, and the first part of the body if there is one already."""
        ...

    def data(self, data: memoryview) -> None: ...

    def end(self) -> None: ...

    def let_client_pause(self) -> None: ...

    def hijack(self) -> tuple[Conn, bytes]: ...


class ResponseWriter:
    """Write the response to one request. Set `headers`, then the status if it is not 200, then write the body.

    Only one thread at a time may use it.
    """

    __slots__ = ("_bodiless", "_buffer", "_head", "_sent", "_transport", "headers", "hijacked", "status")

    def __init__(self, transport: Transport, *, head: bool = False) -> None:
        """Create the writer. With `head`, the request was a HEAD, and no body is sent whatever the handler writes."""
        self._transport = transport
        self._head = head
        self._buffer = bytearray()
        self._sent = False
        self._bodiless = head
        self.headers = Headers()
        self.status = 0
        self.hijacked = False

    def write_header(self, code: int) -> None:
        """Set the status; only the first call counts. Headers that are set later may have no effect."""
        if self.status:
            return
        self.status = code
        self._bodiless = self._head or code in (204, 304)

    def write(self, data: bytes) -> None:
        """Send the data, except for a small amount that stays buffered until `flush`. Raise ClientGone."""
        self.write_header(200)
        view = memoryview(data)
        if not self._sent:
            self._buffer += view[:_PART]
            if len(self._buffer) <= _BUFFER:
                return
            self.flush()
            view = view[_PART:]
        self._send(view)

    def flush(self) -> None:
        """Send everything written so far, at least the head. Raise ClientGone."""
        self.write_header(200)
        data = bytes(self._buffer)
        self._buffer.clear()
        if self._sent:
            self._send(memoryview(data))
        else:
            self._start(data)

    def let_client_pause(self) -> None:
        """Mark the body as a stream, such as a log, whose client may stop reading for any length of time.

        Without the mark, the server ends a response whose client stops reading, because the unsent data stays in
        memory.
        """
        self._transport.let_client_pause()

    def hijack(self) -> tuple[Conn, bytes]:
        """Return the bare connection, and the bytes that were read from it after the request's head.

        The server no longer speaks HTTP on the connection, and closes it when the handler returns.
        """
        if self._sent:
            raise RuntimeError("the response has been started already")
        self.hijacked = True
        self.status = self.status or 101
        return self._transport.hijack()

    def finish(self) -> None:
        """Complete the response after the handler has returned. Only the server calls this. Raise ClientGone."""
        if self.hijacked:
            return
        self.write_header(200)
        if not self._sent:
            if "Content-Length" not in self.headers and self.status not in (204, 304):
                self.headers.set("Content-Length", str(len(self._buffer)))
            self.flush()
        self._transport.end()

    @property
    def started(self) -> bool:
        """Report whether the head was sent, so that the status can no longer change."""
        return self._sent or self.hijacked

    def reset(self) -> None:
        """Discard headers and body, so that an error can take their place. Call this only before `started`."""
        self.headers = Headers()
        self.status = 0
        self._bodiless = self._head
        self._buffer.clear()

    def _start(self, data: bytes) -> None:
        self._sent = True
        if data and "Content-Type" not in self.headers:
            self.headers.set("Content-Type", _content_type(data))
        self._transport.start(self.status, self.headers, b"" if self._bodiless else data)

    def _send(self, view: memoryview) -> None:
        if self._bodiless:
            return
        for start in range(0, len(view), _PART):
            self._transport.data(view[start : start + _PART])


def _content_type(body: bytes) -> str:
    # DIVERGES (safer): this kubelet sends a body of unknown type as plain text, or as bytes if it is not text.
    # Go: net/http/server.go, (*chunkWriter).writeHeader: the Go kubelet guesses the type from the start of the body,
    # and may guess HTML.
    # Why: a browser must not execute what a container has printed.
    # Test: response_test.py:test_responses
    return "application/octet-stream" if _BINARY.search(body[:_SNIFFED]) else "text/plain; charset=utf-8"


Handler = Callable[[ResponseWriter, "Request"], None]


def error(w: ResponseWriter, text: str, code: int) -> None:
    """Respond with a line of plain text."""
    for name in ("Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control"):
        w.headers.delete(name)
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.headers.set("X-Content-Type-Options", "nosniff")
    w.write_header(code)
    w.write(f"{text}\n".encode(errors="replace"))
