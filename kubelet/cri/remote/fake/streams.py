"""Carry several streams over one connection, with SPDY/3.1 or WebSockets.

The clients of a runtime's streaming server speak both. kubectl and client-go speak SPDY here, even if they speak
WebSockets to the kubelet. Other clients use the older protocols over WebSockets, which the kubelet passes on.

Go: k8s.io/streaming/pkg/httpstream/spdy/connection.go, k8s.io/streaming/pkg/httpstream/wsstream/conn.go
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from pkg.apimachinery.util import httpstream
from pkg.apimachinery.util.httpstream import spdy, wsstream
from pkg.apiserver.util.proxy.websocket import Closed, Part, Reply, WebSocket
from pkg.golang import http

# These are the streams of commands, with their numbers in the WebSocket protocol.
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
STREAM_TYPES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
COMMAND_PROTOCOL = "v4.channel.k8s.io"
PORT_FORWARD_PROTOCOL = "portforward.k8s.io"
_READ_SIZE = 1 << 16


class Session(Protocol):
    """Define what the reading thread needs from the user of the streams. Header names are in lower case."""

    def opened(self, stream: int, headers: Mapping[str, str]) -> None: ...

    def received(self, stream: int, data: bytes) -> None: ...

    def ended(self, stream: int) -> None:
        """Handle the end of the client's data on the stream."""
        ...

    def gone(self) -> None:
        """Handle the end of the connection. This is the last call, and happens once."""
        ...


class Streams:
    """Carry the streams of one connection. One thread calls `run`; the other methods are thread-safe.

    The connection is plain and has no deadlines: one thread may read from it while another sends.
    """

    def __init__(self, conn: http.Conn) -> None:
        self._conn = conn
        self._lock = threading.Lock()  # The lock is held while a frame is made and sent.

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data on a stream, and end the stream if `end` is set.

        Raise OSError if the client has closed its connection.
        """
        raise NotImplementedError

    def finish(self) -> None:
        """End the sending direction; the client closes the connection."""
        with contextlib.suppress(OSError):
            self._conn.shutdown_write()

    def run(self, session: Session, first: bytes) -> None:
        """Pass incoming data to the session, starting with `first`, until the connection ends."""
        try:
            with contextlib.suppress(OSError):
                data = first
                while True:
                    self._feed(session, data)
                    data = self._conn.recv(_READ_SIZE)
                    if not data:
                        break
        finally:
            session.gone()

    def _feed(self, session: Session, data: bytes) -> None:
        raise NotImplementedError


class SPDYStreams(Streams):
    """Carry streams over SPDY: the client opens them, and their headers name their purpose."""

    def __init__(self, conn: http.Conn) -> None:
        super().__init__(conn)
        self._framer = spdy.Framer()
        self._reader = spdy.Framer()

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        with self._lock:
            self._conn.sendall(self._framer.data_head(stream, len(data), end) + data)

    def _feed(self, session: Session, data: bytes) -> None:
        for frame in self._reader.feed(data):
            match frame:
                case spdy.SynStream():
                    with self._lock:
                        self._conn.sendall(self._framer.syn_reply(frame.stream_id, {}))
                    session.opened(frame.stream_id, frame.headers)
                    if frame.fin:
                        session.ended(frame.stream_id)
                case spdy.Data():
                    session.received(frame.stream_id, bytes(frame.data))
                    if frame.fin:
                        session.ended(frame.stream_id)
                case spdy.RstStream():
                    session.ended(frame.stream_id)
                case spdy.Ping() if frame.ping_id % 2:
                    with self._lock:
                        self._conn.sendall(self._framer.ping(frame.ping_id))


class WebSocketStreams(Streams):
    """Carry streams over a WebSocket: all are open from the start, and each message begins with its stream's number."""

    def __init__(self, conn: http.Conn, websocket: WebSocket, streams: Mapping[int, Mapping[str, str]]) -> None:
        super().__init__(conn)
        self._websocket = websocket
        self._streams = streams
        self._open = set(streams)
        self._opened = False
        self._message = b""

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data on a stream. This protocol cannot end a single stream: the connection ends with the last one."""
        with self._lock:
            if data:
                self._conn.sendall(self._websocket.message(bytes([stream]) + data))
            if end:
                self._open.discard(stream)
            over = end and not self._open
        if over:
            self.finish()

    def finish(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._conn.sendall(self._websocket.close())
        super().finish()

    def _feed(self, session: Session, data: bytes) -> None:
        if not self._opened:
            self._opened = True
            for stream, headers in self._streams.items():
                session.opened(stream, headers)
        # The lock is not held here, because the session may send. The connection separates its reading from its
        # sending.
        for event in self._websocket.feed(data):
            match event:
                case Part():
                    self._take(session, event)
                case Reply():
                    with self._lock:
                        self._conn.sendall(event.data)
                case Closed():
                    with self._lock:
                        self._conn.sendall(event.reply)
                    raise ConnectionResetError("the client has closed the WebSocket")

    def _take(self, session: Session, part: Part) -> None:
        self._message += part.data
        if part.finished:
            message, self._message = self._message, b""
            if message:
                session.received(message[0], message[1:])


def upgrade_for_command(w: http.ResponseWriter, req: http.Request, wanted: Sequence[int]) -> tuple[Streams, bytes]:
    """Upgrade the request to these streams of a command, and return the first bytes too. Raise HTTPError."""
    names = {number: name for name, number in STREAM_TYPES.items()}
    streams = {number: {"streamtype": names[number]} for number in wanted}
    return _upgrade(w, req, COMMAND_PROTOCOL, streams)


def upgrade_for_ports(w: http.ResponseWriter, req: http.Request, ports: Sequence[int]) -> tuple[Streams, bytes]:
    """Upgrade the request to streams for connections to ports, and return the first bytes too. Raise HTTPError.

    Over WebSockets there is a connection to each of these ports.
    """
    if not wsstream.is_websocket_request(req):
        return _upgrade(w, req, PORT_FORWARD_PROTOCOL, {})
    streams: dict[int, dict[str, str]] = {}
    for index, port in enumerate(ports):
        headers = {"port": str(port), "requestid": str(index)}
        streams[2 * index + 1] = {"streamtype": "error", **headers}
        streams[2 * index] = {"streamtype": "data", **headers}
    carried, first = _upgrade(w, req, COMMAND_PROTOCOL, streams)
    for stream, headers in streams.items():
        # The protocol starts with the port number on each stream.
        carried.send(stream, struct.pack("<H", int(headers["port"])))
    return carried, first


def _upgrade(
    w: http.ResponseWriter, req: http.Request, protocol: str, streams: Mapping[int, Mapping[str, str]]
) -> tuple[Streams, bytes]:
    if wsstream.is_websocket_request(req):
        if protocol not in wsstream.protocols(req):
            raise http.HTTPError(
                400, f"only the protocol {protocol} is supported, not {', '.join(wsstream.protocols(req))}"
            )
        websocket = WebSocket(req)
        accepted = websocket.accept(protocol)
        conn, first = w.hijack()
        conn.sendall(accepted)
        return WebSocketStreams(conn, websocket, streams), first
    offered = [
        name.strip() for each in req.headers.get_all(httpstream.HEADER_PROTOCOL_VERSION) for name in each.split(",")
    ]
    if not httpstream.is_upgrade_request(req) or protocol not in offered:
        raise http.HTTPError(400, f"only the protocol {protocol} is supported, not {', '.join(offered)}")
    conn, first = w.hijack()
    head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {spdy.HEADER_SPDY_31}\r\n"
    conn.sendall(f"{head}{httpstream.HEADER_PROTOCOL_VERSION}: {protocol}\r\n\r\n".encode())
    return SPDYStreams(conn), first
