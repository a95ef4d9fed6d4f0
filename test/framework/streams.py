"""Use the exec and port-forward streams of a kubelet or a runtime over SPDY, without kubectl."""

from __future__ import annotations

import json
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import urlencode

from pkg.apimachinery.util.httpstream import spdy

TIMEOUT = 60.0
EXEC_PROTOCOL = "v4.channel.k8s.io"
PORT_FORWARD_PROTOCOL = "portforward.k8s.io"
_READ_SIZE = 1 << 16


def connect(host: str, port: int, tls: bool) -> socket.socket:
    """Connect to a server. The client accepts every certificate."""
    sock = socket.create_connection((host, port), timeout=TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return sock
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(sock)


def exec_path(pod: str, container: str, command: Sequence[str], *, stdin: bool = False) -> str:
    """Return the kubelet's path that runs a command and returns its output."""
    query = [("command", word) for word in command] + [("output", "1"), *([("input", "1")] if stdin else [])]
    return f"/exec/default/{pod}/{container}?{urlencode(query)}"


class Streams:
    """Use an upgraded connection within a `with` block, from one thread.

    `send` and `read` identify a stream by the number that `open` returned.
    """

    def __init__(self, sock: socket.socket, path: str, protocol: str) -> None:
        self.sock = sock
        self._framer = spdy.Framer()
        self._frames: deque[spdy.Frame] = deque()
        self._next = 1
        self._ended: set[int] = set()
        head = f"POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        sock.sendall(f"{head}X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = sock.recv(_READ_SIZE)
            assert data, f"the server did not upgrade the connection: {answer.decode()}"
            answer += data
        status, _, rest = answer.partition(b"\r\n\r\n")
        assert status.startswith(b"HTTP/1.1 101 "), f"the server did not upgrade the connection: {answer.decode()}"
        self._feed(rest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def open(self, **headers: str) -> int:
        """Open a new stream and return its number once the other side has accepted it."""
        stream, self._next = self._next, self._next + 2
        self.sock.sendall(self._framer.syn_stream(stream, headers))
        waiting: list[spdy.Frame] = []
        while not isinstance(frame := self._receive(), spdy.SynReply):
            waiting.append(frame)
        self._frames.extendleft(reversed(waiting))
        assert frame.stream_id == stream, frame
        return stream

    def send(self, stream: int, data: bytes, end: bool = False) -> None:
        self.sock.sendall(self._framer.data_head(stream, len(data), end) + data)

    def read(self, stream: int) -> bytes:
        """Return the next data of the stream, or b"" at its end.

        Data of other streams is lost, but their ends are recorded.
        """
        while stream not in self._ended:
            frame = self._receive()
            if isinstance(frame, spdy.RstStream):
                self._ended.add(frame.stream_id)
            if isinstance(frame, spdy.Data):
                if frame.fin:
                    self._ended.add(frame.stream_id)
                if frame.stream_id == stream and frame.data:
                    return bytes(frame.data)
        return b""

    def read_all(self, stream: int) -> bytes:
        return b"".join(iter(lambda: self.read(stream), b""))

    def count(self, stream: int) -> int:
        """Return the number of bytes that arrive on the stream until it ends."""
        total = 0
        while stream not in self._ended:
            frame = self._receive()
            if isinstance(frame, spdy.Data):
                if frame.stream_id == stream:
                    total += len(frame.data)
                if frame.fin:
                    self._ended.add(frame.stream_id)
        return total

    def _receive(self) -> spdy.Frame:
        while not self._frames:
            data = self.sock.recv(_READ_SIZE)
            if not data:
                raise ConnectionError("the connection has ended")
            self._feed(data)
        return self._frames.popleft()

    def _feed(self, data: bytes) -> None:
        self._frames.extend(self._framer.feed(data))


class Command(Streams):
    """Run a command in a container, with stdout and, if wanted, with stdin."""

    def __init__(self, sock: socket.socket, path: str, *, stdin: bool = False) -> None:
        super().__init__(sock, path, EXEC_PROTOCOL)
        # stdin must not be the last stream: data that is sent on a stream that the server has only just accepted may be
        # lost.
        self.stdin = self.open(streamType="stdin") if stdin else 0
        self.error = self.open(streamType="error")
        self.stdout = self.open(streamType="stdout")

    def status(self) -> dict[str, Any]:
        """Return how the command ended."""
        decoded: dict[str, Any] = json.loads(self.read_all(self.error))
        return decoded


class Forwarding(Streams):
    """Forward connections to ports of a pod."""

    def __init__(self, sock: socket.socket, path: str) -> None:
        super().__init__(sock, path, PORT_FORWARD_PROTOCOL)
        self._requests = 0

    def connect(self, port: int) -> int:
        """Return the stream of a new connection."""
        self._requests += 1
        headers = {"port": str(port), "requestID": str(self._requests)}
        self.send(self.open(streamType="error", **headers), b"", end=True)
        return self.open(streamType="data", **headers)
