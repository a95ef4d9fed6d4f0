"""Test how much memory a hostile client of a command can make the server use.

The server runs in a separate process.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg.apimachinery.util.proxy.testing import TIMEOUT, FakeRuntime, FakeStreams, WebSocketClient

ROOT = Path(__file__).resolve().parents[4]
MIB = 1 << 20
SERVER = """
import sys
from pkg.apiserver.util.proxy import Options, StreamTranslatorHandler, TunnelingHandler
from pkg.golang import http

if sys.argv[1] == "tunnel":
    handler = TunnelingHandler(sys.argv[2])
else:
    handler = StreamTranslatorHandler(sys.argv[2], Options(stdin=True, stdout=True, tty=True))
server = http.Server(handler.serve_http, name="hostile")
server.listen("127.0.0.1", 0)
print(server.port, flush=True)
server.serve()
"""
_TEXT, _BINARY, _PING = 0x81, 0x82, 0x89


@contextlib.contextmanager
def serving(kind: str, url: str) -> Iterator[tuple[int, int]]:
    """Run the server in a separate process, and yield its port and process ID."""
    command = [sys.executable, "-c", SERVER, kind, url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
            assert process.poll() is None, "it still runs"
        finally:
            process.kill()


def peak(pid: int) -> int:
    """Return the maximum memory that a process has used, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def frame(kind: int, payload: bytes) -> bytes:
    """Return a frame as a client sends it, masked with zeros."""
    size = len(payload)
    if size < 126:
        return bytes([kind, 0x80 | size, 0, 0, 0, 0]) + payload
    return bytes([kind, 0xFE]) + struct.pack(">H", size) + bytes(4) + payload


def send_all(sock: socket.socket, data: bytes, times: int) -> None:
    """Send until the server accepts no data for a while, or has closed the connection."""
    sock.settimeout(1.0)
    with contextlib.suppress(OSError):
        for _ in range(times):
            sock.sendall(data)


_WHOLE = 40 * MIB
_PIECE = bytes(60_000)


@pytest.mark.parametrize(
    ("kind", "first", "then"),
    [
        ("exec", b"", frame(_PING, bytes(125)) * 500),
        ("exec", b"", frame(_PING, b"?") * 9000),
        ("exec", frame(_BINARY & 0x7F, b"\x04"), frame(0, _PIECE)),
        ("exec", frame(_BINARY & 0x7F, b"\xff"), frame(0, _PIECE)),
        ("exec", frame(_TEXT & 0x7F, b"\x04"), frame(0, _PIECE)),
        ("exec", bytes([_BINARY, 0xFF]) + struct.pack(">Q", _WHOLE) + bytes(4) + b"\x04", _PIECE),
        ("exec", b"", frame(_BINARY, b"\x00x") * 9000),
        ("exec", frame(_BINARY & 0x7F, b"\x00"), frame(0, _PIECE)),
        ("exec", b"", frame(_BINARY, b"\x07" + _PIECE)),
        ("tunnel", b"", frame(_PING, bytes(125)) * 500),
        ("tunnel", b"", frame(_BINARY, b"x") * 9000),
    ],
    ids=[
        "pings", "short pings", "size in pieces", "close signal in pieces", "size as text", "size as a whole",
        "short input", "input", "channel that is not there", "pings in a tunnel", "short messages in a tunnel",
    ],
)  # fmt: skip
def test_memory_does_not_grow_with_what_a_client_sends(kind: str, first: bytes, then: bytes) -> None:
    """A client cannot make the server's memory grow.

    The command does not read its input, and the client does not read the output.
    """
    over = threading.Event()

    def serve(streams: FakeStreams) -> None:
        if kind == "exec":
            streams.accept(4)
        over.wait(TIMEOUT)

    protocol = "v4.channel.k8s.io" if kind == "exec" else "portforward.k8s.io"
    asked = "v5.channel.k8s.io" if kind == "exec" else "SPDY/3.1+portforward.k8s.io"
    with FakeRuntime(serve, protocol=protocol) as runtime, serving(kind, runtime.url) as (port, pid):
        try:
            with WebSocketClient(port, "/", asked) as client:
                before = peak(pid)
                client.sock.sendall(first)
                send_all(client.sock, then, _WHOLE // len(then))
                assert peak(pid) - before < 16 * MIB
        finally:
            over.set()
