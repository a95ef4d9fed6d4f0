"""Provide a fake streaming server of a runtime, and a WebSocket client."""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from wsproto import ConnectionType, WSConnection, events

from pkg import golang
from pkg.apimachinery.util.httpstream import spdy

TIMEOUT = 30.0
_READ_SIZE = 1 << 16
_UPGRADED = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"


@dataclass
class FakeStreams:
    """Represent the runtime's side of an upgraded connection, with its streams by purpose."""

    sock: socket.socket
    framer: spdy.Framer = field(default_factory=spdy.Framer)
    streams: dict[str, int] = field(default_factory=dict)
    _frames: list[spdy.Frame] = field(default_factory=list)

    def accept(self, count: int, of: str = "streamtype") -> list[str]:
        """Accept this many streams, and return their purposes in order."""
        names: list[str] = []
        while len(names) < count:
            frame = self.next()
            assert isinstance(frame, spdy.SynStream), frame
            names.append(frame.headers[of])
            self.streams[frame.headers[of]] = frame.stream_id
            self.sock.sendall(self.framer.syn_reply(frame.stream_id, {}))
        return names

    def send(self, name: str, data: bytes, fin: bool = False) -> None:
        self.sock.sendall(self.framer.data_head(self.streams[name], len(data), fin) + data)

    def read(self, name: str) -> bytes:
        """Return all data of a stream up to its end; data on another stream is an error."""
        got = bytearray()
        while True:
            frame = self.next()
            assert isinstance(frame, spdy.Data) and frame.stream_id == self.streams[name], frame
            got += frame.data
            if frame.fin:
                return bytes(got)

    def next(self) -> spdy.Frame | None:
        """Return the next frame, or None when the other side has closed the connection."""
        while not self._frames:
            try:
                data = self.sock.recv(_READ_SIZE)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames += self.framer.feed(data)
        return self._frames.pop(0)


class FakeRuntime:
    """Upgrade each connection and pass it to `serve`, or send `refusal`.

    The class is a context manager.
    """

    def __init__(
        self, serve: Callable[[FakeStreams], None], protocol: str = "v4.channel.k8s.io", refusal: bytes = b""
    ) -> None:
        self._serve = serve
        self._answer = refusal or f"{_UPGRADED}X-Stream-Protocol-Version: {protocol}\r\n\r\n".encode()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/exec/token?x=y"
        self.heads: list[str] = []
        self._errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._thread = golang.go(self._run, name="fake-runtime")

    def __enter__(self) -> FakeRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        if not self._errors.empty():
            raise self._errors.get()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(TIMEOUT)
                try:
                    self._answer_one(sock)
                except BaseException as err:
                    # The main thread raises it at the end of the with statement.
                    self._errors.put(err)

    def _answer_one(self, sock: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = sock.recv(1)
            assert piece, f"the connection ended within its head: {head!r}"
            head += piece
        self.heads.append(head.decode())
        sock.sendall(self._answer)
        if self._answer.startswith(b"HTTP/1.1 101"):
            self._serve(FakeStreams(sock))


class WebSocketClient:
    """Open a WebSocket to a server on this machine.

    The class is a context manager. `refused` is the status code of a refusal, or 0.
    """

    def __init__(self, to: int | socket.socket, target: str, *subprotocols: str) -> None:
        """Connect; `to` is a port or a connection."""
        self.sock = to if isinstance(to, socket.socket) else socket.create_connection(("127.0.0.1", to), TIMEOUT)
        self._ws = WSConnection(ConnectionType.CLIENT)
        request = events.Request(host="127.0.0.1", target=target, subprotocols=list(subprotocols))
        self.sock.sendall(self._ws.send(request))
        self._events = self._receive()
        self.refused, self.refusal = 0, b""
        self.subprotocol: str | None = None
        match event := next(self._events):
            case events.AcceptConnection():
                self.subprotocol = event.subprotocol
            case events.RejectConnection():
                self.refused = event.status_code
                self.refusal = b"".join(e.data for e in self._events if isinstance(e, events.RejectData))

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, event: events.Event) -> None:
        self.sock.sendall(self._ws.send(event))

    def message(self, data: bytes) -> None:
        self.send(events.BytesMessage(data=data))

    def messages(self) -> Iterator[bytes]:
        """Yield the messages until the server closes the WebSocket; other events are skipped."""
        data = bytearray()
        for event in self._events:
            if isinstance(event, events.BytesMessage):
                data += event.data
                if event.message_finished:
                    yield bytes(data)
                    data.clear()

    def wait_for(self, kind: type[events.Event]) -> events.Event:
        return next(event for event in self._events if isinstance(event, kind))

    def _receive(self) -> Iterator[events.Event]:
        """Yield events until a close frame or the end of the connection."""
        while True:
            for event in self._ws.events():
                yield event
                if isinstance(event, events.CloseConnection):
                    self.sock.sendall(self._ws.send(event.response()))
                    return
                if isinstance(event, events.RejectData) and event.body_finished:
                    return
            data = self.sock.recv(_READ_SIZE)
            if not data:
                return
            self._ws.receive_data(data)
