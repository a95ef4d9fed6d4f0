"""Attack the kubelet's port as a client, in a separate process, until SIGTERM.

    python -m framework.hostile.client anonymous PORT DIRECTORY
    python -m framework.hostile.client logs PORT DIRECTORY TARGET...

Without credentials the client tries to exhaust the server before the authentication. With credentials it reads the logs
at the targets, as the API server does on behalf of a user who has only pods/log, and requests everything else as that
user. DIRECTORY has the certificates. At the end the client writes the counts of its actions to attack.json there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from framework.apiserver.certificates import CertificateAuthority
from framework.log_followers import insecure_context
from pkg.util.testing import reset

REPORT = "attack.json"
# These are the common names of the API server's client certificate and of the user who may only read logs.
API_SERVER, LOG_READER = "kubelet-client", "log-reader"
# An attacker has many addresses. Well-behaved clients use the others.
_SOURCES = [f"127.0.1.{number}" for number in range(1, 21)]
_TIMEOUT = 30.0
# Useless connections are held for this many seconds.
_HOLD = 5.0
_MEBIBYTE = 1 << 20
_FOREVER = 1 << 30

Attack = Callable[["Client"], None]


@dataclass
class Client:
    """Hold what the threads of one attacker share."""

    port: int
    directory: Path
    targets: Sequence[str]

    def __post_init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()  # The lock guards `counts`.
        self.counts: Counter[str] = Counter()
        self._sources = itertools.cycle(_SOURCES)
        self.nobody = insecure_context()

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def context(self, name: str) -> ssl.SSLContext:
        """Return a TLS context with the certificate of this name in the directory."""
        context = insecure_context()
        context.load_cert_chain(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        return context

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), _TIMEOUT, (next(self._sources), 0))

    def connect_tls(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        sock = self.connect()
        try:
            return (context or self.nobody).wrap_socket(sock)
        except BaseException:
            sock.close()
            raise

    def hold(self, stack: contextlib.ExitStack, sock: socket.socket, data: bytes) -> None:
        """Send as much of the data as the server accepts within a second. The stack closes the connection later."""
        stack.enter_context(sock)
        sock.settimeout(1.0)
        with contextlib.suppress(OSError):
            sock.sendall(data)

    def wait(self, seconds: float = _HOLD) -> None:
        self.stopping.wait(seconds)


def head(method: str, target: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: node", *fields, "", ""]).encode("latin-1")


def drain(sock: socket.socket, size: int = _FOREVER) -> int:
    """Read to the end of the data, or at least this many bytes."""
    count = 0
    while count < size and (data := sock.recv(1 << 16)):
        count += len(data)
    return count


# The following attacks use no credentials.


def large_heads(client: Client) -> None:
    """Send targets and header fields of a mebibyte, some of them incomplete, and do not read the responses."""
    size = _MEBIBYTE - 200
    datas = [
        head("GET", f"//{'x' * size}"),
        head("GET", "/pods", f"X: {'x' * size}"),
        head("GET", "/pods", f"Authorization: Bearer {'x' * size}"),
        head("GET", f"/{'%2e%2e/' * (size // 7)}"),
        head("GET", "/pods", f"X: {'x' * size}")[:-1],
        head("GET", "/pods", *["a:b"] * (size // 5)),
    ]
    with contextlib.ExitStack() as stack:
        for data in datas * 3:
            client.hold(stack, client.connect_tls(), data)
            client.count("large heads")
        client.wait()


def slow_heads(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(client.connect_tls()) for _ in range(30)]
        for byte in head("GET", "/pods", "X-Slow: " + "x" * 60):
            for sock in list(socks):
                try:
                    sock.sendall(bytes([byte]))
                except OSError:
                    socks.remove(sock)
            client.count("slow heads, bytes")
            client.wait(0.5)
            if client.stopping.is_set() or not socks:
                return


def half_open(client: Client) -> None:
    """Open connections that send nothing, or that begin a handshake and do not continue."""
    with contextlib.ExitStack() as stack:
        for number in range(300):
            data = (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x40\x00" + bytes(9000))[number % 3]
            client.hold(stack, client.connect(), data)
            client.count("half-open handshakes")
        client.wait()


def certificates(client: Client) -> None:
    """Begin handshakes with as many certificates as are permitted, and with far more."""
    with contextlib.ExitStack() as stack:
        for number in range(12):
            context = client.context("few" if number % 3 else "many")
            with contextlib.suppress(OSError):
                client.hold(stack, client.connect_tls(context), head("GET", "/pods"))
            client.count("long chains of certificates")
        client.wait(1.0)


_PROTOCOLS = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    b"\x80\x2e\x01\x00\x02" + bytes(40),
    b"\x15\x03\x03\x00\x02\x02\x28" * 1000,
    b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    bytes(100_000),
    b"\xff" * 100_000,
)


def wrong_protocols(client: Client) -> None:
    for data in _PROTOCOLS:
        for sock in (client.connect(), client.connect_tls()):
            with sock, contextlib.suppress(OSError):
                sock.settimeout(2.0)
                sock.sendall(data)
                drain(sock, 1000)
            client.count("wrong protocols")
    with client.connect_tls() as secured, contextlib.suppress(OSError):
        os.write(secured.fileno(), random.randbytes(20_000))
        secured.settimeout(2.0)
        drain(secured)
    client.wait(0.1)


def pipelines(client: Client) -> None:
    """Send thousands of requests at once and read no response."""
    with contextlib.ExitStack() as stack:
        for target in ("/pods", "/healthz", "//", "/containerLogs/a/b/c"):
            client.hold(stack, client.connect_tls(), head("GET", target) * 5000)
            client.count("pipelines")
        client.wait()


_BODIES = (
    b"-1\r\n",
    b"0x10\r\n",
    b"f" * 5000,
    b"1\r\na\r\n" * 100_000,
    b"1;" + b"x" * 4000 + b"\r\na\r\n" * 100,
    b"0\r\n" + b"a:b\r\n" * 200_000,
    b"7fffffffffffffff\r\n" + bytes(_MEBIBYTE),
    b"ffffffffffffffffffff\r\n",
)


def chunks(client: Client) -> None:
    begin = head("POST", "/run/a/b/c", "Transfer-Encoding: chunked")
    for body in _BODIES:
        with client.connect_tls() as sock, contextlib.suppress(OSError):
            sock.settimeout(2.0)
            sock.sendall(begin + body)
            drain(sock)
        client.count("chunks")


_ODD = (
    head("CONNECT", "node:443"),
    head("CONNECT", "/"),
    head("OPTIONS", "*"),
    head("GET", "http://other/pods"),
    head("GET", "/pods", "Transfer-Encoding: chunked, chunked"),
    head("GET", "/pods", "Content-Length: 5", "Content-Length: 6"),
    head("GET", "/pods", "Expect: 100-continue", "Content-Length: 1000000000"),
    head("GET", "/pods", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    head("GET", "/exec/a/b/c", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"),
    head("POST", "/exec/a/b/c", "Upgrade: SPDY/3.1", "Connection: Upgrade"),
    head("GET", "/pods", "Range: bytes=" + ",".join(["0-1"] * 5000)),
    b"\x00\r\n\r\n",
    b"GET /pods HTTP/9.9\r\n\r\n",
    b"GET  /pods  HTTP/1.1\r\nHost : a\r\n\r\n",
    b"\r\n" * 10_000,
)


def odd_requests(client: Client) -> None:
    for data in _ODD:
        with client.connect_tls() as sock, contextlib.suppress(OSError):
            sock.settimeout(2.0)
            sock.sendall(data)
            drain(sock, 1000)
        client.count("odd requests")


def refusals(client: Client) -> None:
    """Collect as many 401 responses as one connection gets."""
    with client.connect_tls() as sock:
        for _ in range(2000):
            sock.sendall(head("GET", f"/pods?{random.random()}"))
            sock.recv(1 << 12)
            client.count("refusals")
            if client.stopping.is_set():
                return


def tokens(client: Client) -> None:
    """Send tokens, each of which the kubelet has to send to the API server because it is new."""
    protocol = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io."
    with client.connect_tls() as sock:
        for number in range(200):
            token = random.randbytes(random.choice((16, 400, 20_000))).hex()
            field = f"{protocol}{token}" if number % 5 == 0 else f"Authorization: Bearer {token}"
            sock.sendall(head("GET", "/pods", field))
            sock.recv(1 << 12)
            client.count("tokens")
            if client.stopping.is_set():
                return


def cuts(client: Client) -> None:
    """Cut connections at once, at every stage."""
    for _ in range(50):
        reset(client.connect())
        sock = client.connect()
        sock.sendall(b"\x16\x03\x01")
        reset(sock)
        secured = client.connect_tls()
        secured.sendall(b"GET /po")
        reset(secured)
        client.connect_tls().close()
        client.count("cuts")
    client.wait(0.2)


# The following attacks use credentials that permit only logs.


def hold_logs(client: Client) -> None:
    """Follow more logs than permitted, and read none of them."""
    context = client.context(API_SERVER)
    with contextlib.ExitStack() as stack:
        for target in itertools.islice(itertools.cycle(client.targets), 600):
            data = head("GET", f"{target}?follow=true")
            client.hold(stack, client.connect_tls(context), data)
            client.count("logs that are held")
            if client.stopping.is_set():
                return
        client.wait(20)


def read_slowly(client: Client) -> None:
    context = client.context(API_SERVER)
    with contextlib.ExitStack() as stack:
        socks: list[ssl.SSLSocket] = []
        for target in client.targets:
            sock = stack.enter_context(client.connect_tls(context))
            sock.sendall(head("GET", target))
            sock.settimeout(0.1)
            socks.append(sock)
        for _ in range(20):
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.recv(1)
            client.count("slow reads")
            client.wait(1.0)


def read_all(client: Client) -> None:
    """Read the whole of every log as fast as possible."""
    context = client.context(API_SERVER)
    for target in client.targets:
        with client.connect_tls(context) as sock:
            sock.sendall(head("GET", target, "Connection: close"))
            while not client.stopping.is_set() and sock.recv(1 << 16):
                pass
        client.count("logs that are read")


_LARGE = "9223372036854775807"
_QUERIES = (
    f"tailLines={_LARGE}",
    "tailLines=1000000",
    "tailLines=1",
    f"tailLines={_LARGE}&limitBytes={_LARGE}&timestamps=true",
    "limitBytes=1",
    f"sinceSeconds={_LARGE}",
    "sinceTime=0001-01-01T00:00:00Z",
    "sinceTime=9999-12-31T23:59:59.999999999Z",
    "sinceTime=2026-01-02T03:04:05.000000000000000000001+23:59",
    "sinceTime=" + "9" * 5000,
    "tailLines=" + "9" * 5000,
    "tailLines=0&follow=true",
    "previous=true",
    "stream=Stderr&tailLines=5",
    "follow=true&sinceTime=9999-12-31T23:59:59Z",
    "&" * 10_000,
    "&".join(f"x{number}=1" for number in range(999)),
    "tailLines=%ff%00",
    "timestamps=1&timestamps=0&tailLines=1&tailLines=2",
    "x=" + "%41" * 100_000,
)


def odd_queries(client: Client) -> None:
    """Send odd queries. Read each response for a moment, and then cut its connection."""
    context = client.context(API_SERVER)
    for query in _QUERIES:
        target = random.choice(client.targets)
        sock = client.connect_tls(context)
        with sock, contextlib.suppress(OSError):
            sock.settimeout(2.0)
            sock.sendall(head("GET", f"{target}?{query}", "Range: bytes=5-,1-2"))
            drain(sock, random.choice((1, 100_000, 10_000_000)))
            reset(sock)
        client.count("odd queries")
        if client.stopping.is_set():
            return


def cut_logs(client: Client) -> None:
    context = client.context(API_SERVER)
    for number, target in enumerate(itertools.islice(itertools.cycle(client.targets), 40)):
        sock = client.connect_tls(context)
        sock.sendall(head("GET", f"{target}?follow=true&tailLines={number % 3}"))
        if number % 2:
            sock.recv(10)
        reset(sock)
        client.count("logs that are cut off")
        if client.stopping.is_set():
            return


def pipeline_logs(client: Client) -> None:
    context = client.context(API_SERVER)
    with contextlib.ExitStack() as stack:
        for target in client.targets:
            data = b"".join(head("GET", f"{target}?tailLines={number}") for number in range(500))
            client.hold(stack, client.connect_tls(context), data)
            client.count("pipelines of logs")
        client.wait()


_FORBIDDEN = (
    "/pods", "/runningpods/", "/configz", "/flagz", "/metrics", "/metrics/cadvisor", "/stats/summary", "/logs/",
    "/exec/default/a/b?command=ls&output=1", "/attach/default/a/b?output=1", "/portForward/default/a?port=80",
    "/run/default/a/b?cmd=ls", "/checkpoint/default/a/b", "/debug/pprof/", "/debug/syncloop.json",
)  # fmt: skip


def all_else(client: Client) -> None:
    """Send requests as the user, to whom the kubelet permits nothing."""
    context = client.context(LOG_READER)
    for target in (*_FORBIDDEN, *client.targets):
        for method in ("GET", "POST"):
            with client.connect_tls(context) as sock:
                sock.sendall(head(method, target, "Connection: close", "Content-Length: 0"))
                answer = sock.recv(1 << 12)
            status = answer[9:12].decode()
            client.count(f"answers {status} to the user")


ANONYMOUS: Sequence[Attack] = (
    large_heads, large_heads, slow_heads, half_open, half_open, certificates, certificates, wrong_protocols, pipelines,
    chunks, odd_requests, refusals, refusals, tokens, tokens, cuts, cuts,
)  # fmt: skip
LOGS: Sequence[Attack] = (
    hold_logs, read_slowly, read_slowly, read_all, read_all, odd_queries, odd_queries, odd_queries, cut_logs, cut_logs,
    pipeline_logs, all_else, all_else,
)  # fmt: skip


def run(client: Client, attack: Attack) -> None:
    """Repeat an attack. The server is expected to close connections."""
    while not client.stopping.is_set():
        try:
            attack(client)
        except OSError as err:
            client.count(f"{attack.__name__}: {type(err).__name__}")
            client.wait(0.1)


def write_chains(directory: Path) -> None:
    """Write certificates of an unknown authority, with as many others as the server accepts, and with more."""
    authority = CertificateAuthority.create("nobody")
    own = authority.client_pair("nobody")
    others = [authority.client_pair(f"nobody-{number}").certificate for number in range(80)]
    for name, count in (("few", 19), ("many", 80)):
        (directory / f"{name}.crt").write_bytes(own.certificate + b"".join(others[:count]))
        (directory / f"{name}.key").write_bytes(own.key)


def main(kind: str, port: str, folder: str, *targets: str) -> None:
    # A real attacker runs on another machine. Here the client gets only the time that the kubelet and its observers
    # leave.
    os.nice(19)
    client = Client(int(port), Path(folder), targets)
    write_chains(client.directory)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: client.stopping.set())
    attacks = {"anonymous": ANONYMOUS, "logs": LOGS}[kind]
    threads = [threading.Thread(target=run, args=(client, attack), daemon=True) for attack in attacks]
    for thread in threads:
        thread.start()
    print("attacking", flush=True)
    client.stopping.wait()
    deadline = time.monotonic() + _HOLD
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    (client.directory / REPORT).write_text(json.dumps(dict(client.counts)))
    os._exit(0)  # The process ends even if threads still wait.


if __name__ == "__main__":
    main(*sys.argv[1:])
