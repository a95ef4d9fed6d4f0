"""Implement the server's side of a WebSocket without doing input or output.

Go: k8s.io/apiserver/pkg/util/proxy/websocket.go, golang.org/x/net/websocket
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from wsproto import events
from wsproto.connection import Connection, ConnectionType
from wsproto.handshake import H11Handshake
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from pkg.apimachinery.util.proxy.relay import PIECES_IN_TURN, TURNS
from pkg.golang import http
from pkg.golang.turn import Turn

# Only these headers are passed to the library, which parses them again, more slowly than pkg.golang.http.
_OF_THE_HANDSHAKE = {
    "host",
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
}
MAX_HANDSHAKE_BYTES = 64 << 10
# `DEFAULT_IDLE_CONNECTION_TIMEOUT` is the time limit for idle connections, in seconds; the streaming servers of
# runtimes have the same limit.
DEFAULT_IDLE_CONNECTION_TIMEOUT = 4 * 3600.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """Describe which streams a command has."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Represent a part of a message; large messages arrive in several parts."""

    data: bytes
    finished: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """Represent a response that the WebSocket protocol itself requires."""

    data: bytes


class Closed:
    """Signal that the client closed the WebSocket, or violated the protocol."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply


class WebSocket:
    """Represent one client's WebSocket, which one thread at a time may use."""

    def __init__(self, req: http.Request) -> None:
        """Parse the opening request; raise HTTPError when it does not open a WebSocket."""
        if req.method != "GET":
            raise http.HTTPError(405, "a WebSocket must be opened with GET")
        if len(req.headers.get_all("Host")) != 1:  # The server accepts other numbers of Host headers in HTTP/1.0.
            raise http.HTTPError(400, "unable to upgrade: exactly one Host header is required")
        self._handshake = H11Handshake(ConnectionType.SERVER)
        fields = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in req.headers.items()
            if name.lower() in _OF_THE_HANDSHAKE
        ]
        if sum(len(name) + len(value) for name, value in fields) > MAX_HANDSHAKE_BYTES:
            raise http.HTTPError(431, "431 Request Header Fields Too Large")
        try:
            self._handshake.initiate_upgrade_connection(fields, "/")
            next(self._handshake.events())
        except (RemoteProtocolError, LocalProtocolError, StopIteration, UnicodeError) as err:
            raise http.HTTPError(400, f"unable to upgrade: {err}") from err
        self._connection = Connection(ConnectionType.SERVER)
        self._closed = False
        self.turn = Turn(TURNS)
        """The caller must hold this turn around `feed` or `in_turns`.

        It also covers the handling of each item, which must not block.
        """

    def accept(self, subprotocol: str | None) -> bytes:
        """Return the response that opens the WebSocket, with one of the client's subprotocols."""
        return self._handshake.send(events.AcceptConnection(subprotocol=subprotocol))

    def feed(self, data: bytes) -> Iterator[Part | Reply | Closed]:
        """Yield the events in the client's bytes; Closed is the last one."""
        if self._closed:
            return
        try:
            self._connection.receive_data(data)
            for event in self.in_turns(self._connection.events()):
                if self._closed:
                    # The caller closed the WebSocket while it handled the previous event.
                    return
                match event:
                    case events.BytesMessage():
                        yield Part(bytes(event.data), event.message_finished)
                    case events.TextMessage():
                        yield Part(event.data.encode(), event.message_finished)
                    case events.Ping():
                        yield Reply(bytes(self._connection.send(event.response())))
                    case events.CloseConnection():
                        yield self._close(event.response())
                        return
        except RemoteProtocolError as err:
            yield self._close(err.event_hint or events.CloseConnection(code=1002))

    def in_turns(self, frames: Iterable[T]) -> Iterator[T]:
        """Yield the frames, and pass the turn on after every PIECES_IN_TURN frames."""
        for count, frame in enumerate(frames, 1):
            if count % PIECES_IN_TURN == 0:
                self.turn.pass_on()
            yield frame

    def message(self, data: bytes) -> bytes:
        """Return a message with this data, or nothing after the WebSocket was closed."""
        return b"" if self._closed else self._connection.send(events.BytesMessage(data=data))

    def close(self) -> bytes:
        """Return the frame that announces the end of the data to the client."""
        return b"" if self._closed else self._close(events.CloseConnection(code=1000)).reply

    def _close(self, event: events.Event) -> Closed:
        self._closed = True
        try:
            return Closed(self._connection.send(event))
        except LocalProtocolError:
            return Closed(b"")
