"""Test what clients can do to a server in its own process: its memory, its time, and its other clients."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg.golang.http.head import MAX_HEAD_BYTES
from pkg.golang.http.testing import read_all

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT = 60.0
MIB = 1 << 20
# A client with a User field counts as authenticated. A request below /last lasts until its client disconnects.
SERVER = """
from pkg.golang import debug, http

debug.give_back_large_blocks()

def handle(w, r):
    user = r.headers.get("User")
    if not user:
        http.error(w, "Unauthorized", 401)
        return
    r.admit(user, r.path, lasting=r.path.startswith("/last"))
    if r.path.startswith("/last"):
        w.write(b"begun")
        w.flush()
        r.ctx.wait(600)
    else:
        w.write(str(len(r.body.read()) + len(r.query.get("command", [""])[0])).encode())

server = http.Server(handle, name="hostile", authenticates=True)
server.listen("127.0.0.1", 0)
print(server.port, flush=True)
server.serve()
"""


class Server:
    """Represent a server in another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.port = int(process.stdout.readline())

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT, source_address=(source, 0))

    def ask(self, target: str = "/", user: str = "somebody", source: str = "127.0.0.9") -> bytes:
        """Send a request on a new connection and return the response, or b"" if there is none."""
        with self.connect(source) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(request(target, user, "Connection: close"))
            return read_all(sock)
        return b""

    def peak(self) -> int:
        """Return the peak memory of the process in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextlib.contextmanager
def serving(seconds: int = 0) -> Iterator[Server]:
    """Run a server; `seconds` limits its processor time, and 0 means no limit."""
    # The parent sets the limit. Code between fork and exec would make gRPC's library, which other tests of this process
    # load, restart its threads in the child.
    process = subprocess.Popen([sys.executable, "-c", SERVER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if seconds:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))
    with process:
        try:
            yield Server(process)
            assert process.poll() is None, "it still runs"
        finally:
            process.kill()


def request(target: str, user: str = "", *fields: str) -> bytes:
    names = [f"User: {user}"] if user else []
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: a", *names, *fields, "", ""]).encode()


def _send(sock: socket.socket, data: bytes) -> None:
    """Send the data, although the server may close the connection meanwhile."""
    with contextlib.suppress(OSError):
        sock.sendall(data)


# A parsed head temporarily exists in several copies; an incomplete head takes only its own bytes.
@pytest.mark.parametrize(("whole", "most"), [(True, 64), (False, 40)], ids=["that are answered", "that never end"])
def test_large_heads_of_clients_that_do_not_read(whole: bool, most: int) -> None:
    data = request(f"//{'x' * (MAX_HEAD_BYTES - 100)}")
    with serving() as server, contextlib.ExitStack() as stack:
        server.ask()
        before = server.peak()
        for number in range(100):
            sock = stack.enter_context(server.connect(f"127.0.0.{1 + number % 8}"))
            _send(sock, data if whole else data[:-1])
        assert server.ask().endswith(b"\r\n\r\n0")
        assert server.peak() - before < most * MIB


def test_a_script_in_the_target_is_served() -> None:
    script = "x" * 1_000_000
    with serving() as server:
        assert server.ask(f"/exec?command={script}").endswith(b"\r\n\r\n%d" % len(script))


_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nUser: somebody\r\nConnection: close\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_MANY = 500_000


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (_HEAD + b"X:" + b" " * 2 * _MANY + b"\0\r\n\r\n", 400),
        (_HEAD + b"X: a" + b" " * 2 * _MANY + b"\x0b\r\n\r\n", 400),
        (_HEAD + b"X: " + b"a " * _MANY + b"\r\n\r\n", 200),
        (_HEAD + b"Transfer-Encoding: " + b"a," * _MANY + b"\r\n\r\n", 501),
        (_HEAD + b"Connection: " + b", " * _MANY + b"\r\n\r\n", 431),
        (_HEAD + b"Content-Length: " + b"1" * 2 * _MANY + b"\r\n\r\n", 400),
        (_HEAD + b"a:b\r\n" * (_MANY // 3) + b"\r\n", 431),
        (_HEAD + b"X: a\r\n" + b" a\r\n" * (_MANY // 3) + b"\r\n", 431),
        (b"GET /" + b"%" * 2 * _MANY + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 414),
        (b"GET " + b"a" * 2 * _MANY + b"\r\n\r\n", 400),
        (b"G" * 2 * _MANY + b" / HTTP/1.1\r\n\r\n", 400),
        (_CHUNKED + b"5;" + b" " * _MANY + b"\nx\r\n", 400),
        (_CHUNKED + b"5" + b" " * _MANY + b"\0\r\n", 400),
        (_CHUNKED + b"1\r\na\r\n" * (_MANY // 10) + b"0\r\n\r\n", 200),
        (_CHUNKED + b"1" + b" " * 4000 + b"\r\na\r\n" * 100, 400),
        (_CHUNKED + b"0\r\n" + b"a:b\r\n" * _MANY, 400),
        (_CHUNKED.replace(b"User: somebody\r\n", b"") + b"1\r\na\r\n" * _MANY, 401),
    ],
    ids=lambda value: str(value[80:110]) if isinstance(value, bytes) else str(value),
)
def test_nothing_that_is_sent_takes_long_to_read(data: bytes, status: int) -> None:
    """The server reads every input in linear time.

    The processor time of the server is limited: parsing in more than linear time would take minutes or hours.
    """
    with serving(seconds=30) as server:
        with server.connect() as sock:
            _send(sock, data)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            assert sock.recv(100).startswith(b"HTTP/1.1 %d " % status)
        assert server.ask().endswith(b"\r\n\r\n0")
