"""The response to a request, as handlers write it.

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

# A response up to this length, in bytes, that was not flushed gets a Content-Length instead of chunks.
_BUFFER = 2048
# Of a larger body so much is copied at once: a client that takes nothing would keep all copies for as long.
_PART = 1 << 16
_SNIFFED = 512
# Bytes that no text has.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


class HTTPError(Exception):
    """Raised by a handler that has written nothing yet: the response is this text with this status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ClientGone(ConnectionError):
    """The response cannot be delivered any more. Not a fault of anybody's here."""


class Transport(Protocol):
    """Takes a response to the client. All methods may raise ClientGone."""

    def start(self, status: int, headers: Headers, first: bytes) -> None:
        """Send the head, with the first part of the body if there is one already."""
        ...

    def data(self, data: memoryview) -> None: ...

    def end(self) -> None: ...

    def let_client_pause(self) -> None: ...

    def hijack(self) -> tuple[Conn, bytes]: ...


class ResponseWriter:
    """The response to one request. Set `headers`, then the status unless it is 200, then write the body.

    Used by the thread that serves the request, or by one thread at a time.
    """

    __slots__ = ("_bodiless", "_buffer", "_head", "_sent", "_transport", "headers", "hijacked", "status")

    def __init__(self, transport: Transport, *, head: bool = False) -> None:
        """`head`: the request was a HEAD, and no body is sent whatever is written."""
        self._transport = transport
        self._head = head
        self._buffer = bytearray()
        self._sent = False
        self._bodiless = head
        self.headers = Headers()
        self.status = 0
        self.hijacked = False

    def write_header(self, code: int) -> None:
        """Choose the status; only the first call counts. Headers set later may come too late."""
        if self.status:
            return
        self.status = code
        self._bodiless = self._head or code in (204, 304)

    def write(self, data: bytes) -> None:
        """Send, or keep a little back until `flush`. Raises ClientGone."""
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
        """Send all that was written so far, the head at least. Raises ClientGone."""
        self.write_header(200)
        data = bytes(self._buffer)
        self._buffer.clear()
        if self._sent:
            self._send(memoryview(data))
        else:
            self._start(data)

    def let_client_pause(self) -> None:
        """The body is a stream, such as a log: its client may take nothing for as long as it likes.

        Other responses are ended by then, for what is still to be sent is kept in memory.
        """
        self._transport.let_client_pause()

    def hijack(self) -> tuple[Conn, bytes]:
        """The bare connection, and what was read from it beyond the request's head.

        Nothing of HTTP is done on it any more. It is closed when the handler returns.
        """
        if self._sent:
            raise RuntimeError("the response has been started already")
        self.hijacked = True
        self.status = self.status or 101
        return self._transport.hijack()

    def finish(self) -> None:
        """For the server: the handler has returned. Raises ClientGone."""
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
        """Whether the head has left, so that it is too late for another status."""
        return self._sent or self.hijacked

    def reset(self) -> None:
        """Forget what was set and written, for an error to take its place; only before `started`."""
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
    # DIVERGES (safer): a body of unknown type is plain text, or bytes if it is not text.
    # Go: net/http/server.go, (*chunkWriter).writeHeader: the type is guessed by what the body begins with, and may be
    # HTML.
    # Why: a browser must not run what a container has printed.
    # Test: response_test.py:test_responses
    return "application/octet-stream" if _BINARY.search(body[:_SNIFFED]) else "text/plain; charset=utf-8"


Handler = Callable[[ResponseWriter, "Request"], None]


def error(w: ResponseWriter, text: str, code: int) -> None:
    """Answer with a line of plain text."""
    for name in ("Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control"):
        w.headers.delete(name)
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.headers.set("X-Content-Type-Options", "nosniff")
    w.write_header(code)
    w.write(f"{text}\n".encode(errors="replace"))
