"""Test the kubelet's server on its sockets: ports, certificates, and clients that keep useless connections open."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.hollow_kubelet import HollowKubelet
from framework.hollow_node import HollowNode
from framework.ports import free_port
from framework.waiting import wait_for

from pkg.client_go.util.certificate.testing import Authority
from pkg.util.testing import open_files

TIMEOUT = 30.0
OF_EACH_KIND = 10
OPEN_TO_ALL = {
    "enableServer": True,
    "address": "127.0.0.1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}


def trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)


def get(port: int, path: str, context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT, context=context or trusting_anybody())
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Yield the port of a kubelet in this process."""
    chosen = free_port()
    with HollowNode(None, "served", config={**OPEN_TO_ALL, "port": chosen}):
        yield chosen


def serving_threads() -> int:
    return sum(thread.name == "kubelet-server-connection" for thread in threading.enumerate())


def open_kinds() -> Counter[str]:
    """Count this process's open files by kind, such as "socket" and "pipe"."""
    return Counter(name.partition(":")[0] for _, name in open_files())


def hold_open(port: int, stack: contextlib.ExitStack) -> None:
    """Open OF_EACH_KIND connections of each kind that leads to no complete request."""
    context = trusting_anybody()
    for number in range(OF_EACH_KIND):
        for data in (b"", b"\x16\x03\x01\x02\x00\x01"):
            stack.enter_context(connect(port)).sendall(data)
        for data in (
            b"",
            b"GET /pods HTTP/1.1\r\nHost: x",
            b"POST /run/a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n",
        ):
            secured = stack.enter_context(context.wrap_socket(connect(port)))
            secured.sendall(data)
            secured.sendall(b"X: %d" % number)


def test_clients_that_hold_on_hinder_nobody_and_leave_nothing(port: int) -> None:
    assert get(port, "/healthz") == (200, b"ok")
    wait_for("the connection has ended", lambda: serving_threads() == 0, timeout=TIMEOUT)
    files = open_kinds()
    with contextlib.ExitStack() as stack:
        hold_open(port, stack)
        wait_for("the server serves all connections", lambda: serving_threads() == 5 * OF_EACH_KIND, timeout=TIMEOUT)
        assert get(port, "/healthz") == (200, b"ok")
    wait_for("the threads of the connections have ended", lambda: serving_threads() == 0, timeout=TIMEOUT)

    def more() -> Counter[str]:
        return open_kinds() - files

    # The node is still starting and opens a few watches. A leaking kind of connection would leave ten open files.
    wait_for(
        "no connection has left a file open", lambda: max(more().values(), default=0) < OF_EACH_KIND, TIMEOUT, more
    )


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /pods HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1_200_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 1_200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431"),
        (b"GET /pods HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: x\r\n" % n for n in range(100_000)) + b"\r\n", b"431"),
        (b"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b"1" * 2_000_000, b"413"),
        (b"GET /pods HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"GET /containerLogs/../exec/a/b/c HTTP/1.1\r\nHost: x\r\n\r\n", b"307"),
        (b"GET /logs/%2e%2e/%2e%2e/etc/shadow HTTP/1.1\r\nHost: x\r\n\r\n", b"307"),
        (b"GET /logs/..%2f..%2fetc/shadow HTTP/1.1\r\nHost: x\r\n\r\n", b"307"),
    ],
    ids=["field", "path", "many fields", "body", "length", "other handler", "other folder", "other folder, escaped"],
)
def test_too_much_and_out_of_bounds(port: int, head: bytes, status: bytes) -> None:
    with trusting_anybody().wrap_socket(connect(port)) as sock:
        # The server may respond before the client has sent everything.
        with contextlib.suppress(OSError):
            sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 " + status)


def test_http_on_the_port_of_https(port: int) -> None:
    with connect(port) as sock:
        sock.sendall(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(200).endswith(b"Client sent an HTTP request to an HTTPS server.\n")


# --- Tests with their own kubelet -------------------------------------------------------------------


def write_pair(folder: Path, pair: tuple[bytes, bytes]) -> None:
    for name, content in zip(("tls.crt", "tls.key"), pair, strict=True):
        unfinished = folder / f".{name}"
        unfinished.write_bytes(content)
        unfinished.rename(folder / name)


def test_certificates_that_change(tmp_path: Path) -> None:
    """The kubelet reloads its serving certificate and its client CA without a restart."""
    servers, first, second = Authority("servers"), Authority("first"), Authority("second")
    old, new = (servers.issue("node", ips=["127.0.0.1"]) for _ in range(2))
    write_pair(tmp_path, old)
    client_ca = tmp_path / "client-ca.crt"
    client_ca.write_bytes(first.cert_pem)
    port = free_port()
    config = {
        **OPEN_TO_ALL,
        "port": port,
        "tlsCertFile": str(tmp_path / "tls.crt"),
        "tlsPrivateKeyFile": str(tmp_path / "tls.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(client_ca)},
        },
    }
    trusting = ssl.create_default_context(cadata=servers.cert_pem.decode())
    (tmp_path / "client.pem").write_bytes(b"".join(second.issue("somebody")))
    trusting.load_cert_chain(tmp_path / "client.pem")

    def served() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port)).strip()

    with HollowNode(None, "renewed", config=config):
        assert served() == old[0].decode().strip()
        assert get(port, "/pods", trusting) == (401, b"Unauthorized")
        write_pair(tmp_path, new)
        wait_for("the new certificate", lambda: served() == new[0].decode().strip(), timeout=TIMEOUT)
        unfinished = tmp_path / ".client-ca.crt"
        unfinished.write_bytes(second.cert_pem)
        unfinished.rename(client_ca)
        wait_for("the new authority", lambda: get(port, "/healthz", trusting) == (200, b"ok"), timeout=TIMEOUT)


def test_the_socket_for_root_is_there_without_the_server(tmp_path: Path) -> None:
    node = HollowNode(None, "alone")
    with node:
        assert node.kubelet is not None
        path = Path(node.kubelet.get_root_dir()) / "debug.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b"GET /debug/syncloop.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
            sock.settimeout(TIMEOUT)
            while sock.recv(1 << 16):
                pass
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("port", OPEN_TO_ALL, "port {taken}: listen tcp 127.0.0.1:{taken}: bind: address already in use"),
        (
            "readOnlyPort",
            {"enableServer": False, "address": "127.0.0.1"},
            "readOnlyPort {taken}: listen tcp 127.0.0.1:{taken}: bind: address already in use",
        ),
        ("webhook", {"enableServer": True}, "no client provided, cannot use webhook authentication"),
    ],
)
def test_what_ends_the_start(tmp_path: Path, name: str, config: dict[str, object], message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        kubelet = HollowKubelet(tmp_path, "refused", {**config, **({} if name == "webhook" else {name: number})})
        try:
            kubelet.server.start()
            kubelet.spawn()
            assert kubelet.wait_for_exit(60) == 1
            assert message.format(taken=number) in kubelet.log.read_text()
        finally:
            kubelet.end()
