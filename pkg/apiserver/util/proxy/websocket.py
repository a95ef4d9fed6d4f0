"""The server's side of a WebSocket, as messages in and bytes out.

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

# What of a head opens a WebSocket. The library reads it once more, and not as fast as pkg.golang.http does.
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
# In seconds; the same as of the streaming servers of runtimes.
DEFAULT_IDLE_CONNECTION_TIMEOUT = 4 * 3600.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """Which streams a command has."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message: large ones come in several."""

    data: bytes
    finished: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What the WebSocket itself has to answer."""

    data: bytes


class Closed:
    """The client wants no more, or broke the protocol."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply


class WebSocket:
    """One client's WebSocket. Used by one thread at a time."""

    def __init__(self, req: http.Request) -> None:
        """Raises HTTPError when the request does not open one."""
        if req.method != "GET":
            raise http.HTTPError(405, "a WebSocket is opened with GET")
        if len(req.headers.get_all("Host")) != 1:  # which the server lets pass in HTTP/1.0
            raise http.HTTPError(400, "unable to upgrade: one Host is wanted")
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
        """To be taken around `feed` or `in_turns`, and what is done with each item: nothing there may wait."""

    def accept(self, subprotocol: str | None) -> bytes:
        """The answer that opens it, with one of the subprotocols that the client named."""
        return self._handshake.send(events.AcceptConnection(subprotocol=subprotocol))

    def feed(self, data: bytes) -> Iterator[Part | Reply | Closed]:
        """What the client's bytes mean; nothing comes after Closed."""
        if self._closed:
            return
        try:
            self._connection.receive_data(data)
            for event in self.in_turns(self._connection.events()):
                if self._closed:
                    # Who got the event before this one has closed it.
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
        """The frames, while others have their turn after every so many."""
        for count, frame in enumerate(frames, 1):
            if count % PIECES_IN_TURN == 0:
                self.turn.pass_on()
            yield frame

    def message(self, data: bytes) -> bytes:
        """One message of these bytes, empty when it has been closed."""
        return b"" if self._closed else self._connection.send(events.BytesMessage(data=data))

    def close(self) -> bytes:
        """What tells the client that nothing more comes."""
        return b"" if self._closed else self._close(events.CloseConnection(code=1000)).reply

    def _close(self, event: events.Event) -> Closed:
        self._closed = True
        try:
            return Closed(self._connection.send(event))
        except LocalProtocolError:
            return Closed(b"")
