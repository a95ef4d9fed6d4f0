"""Test the server over real sockets: requests, limits, clients that misbehave, TLS."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for, wait_until_equal
from OpenSSL import SSL

from pkg import golang
from pkg.client_go.util.certificate.testing import Authority
from pkg.golang import debug, http
from pkg.golang.http import conn as httpconn
from pkg.golang.http import connection, tlsconn, transfer
from pkg.golang.http.testing import connect, exchange, read_all, serving
from pkg.golang.turn import MAX_TURNS
from pkg.util.testing import open_files, reset

_TIMEOUT = 30.0
# This is the head, without its last line, of a request after which the server ends the connection.
CLOSING = b"%b %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


def echo(w: http.ResponseWriter, r: http.Request) -> None:
    w.write(f"{r.method} {r.path} ".encode() + r.body.read())


def test_requests_on_one_connection() -> None:
    with serving(echo) as server:
        client = HTTPConnection("127.0.0.1", server.port, timeout=_TIMEOUT)
        for method, body in (("GET", None), ("POST", b"x" * 100_000), ("PUT", b""), ("HEAD", None)):
            client.request(method, "/a", body)
            answer = client.getresponse()
            assert answer.status == 200
            assert answer.read() == (b"" if method == "HEAD" else f"{method} /a ".encode() + (body or b""))
            assert server.connections() == 1
        client.close()
        wait_until_equal("connections", lambda: server.connections(), 0)


def test_a_body_that_the_handler_does_not_read() -> None:
    """The server skips a body that the handler did not read, and serves the next request.

    The body may still arrive after the response was sent.
    """

    def refuse(w: http.ResponseWriter, r: http.Request) -> None:
        http.error(w, "Unauthorized", 401)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    with serving(refuse) as server, connect(server) as sock:
        for _ in range(2):
            sock.sendall(head % 3)
            answer = b""
            while not answer.endswith(b"Unauthorized\n"):
                answer += sock.recv(1000)
            sock.sendall(b"abc")
        # The server does not wait for a body that is much too long.
        sock.sendall(head % (1 << 40))
        assert b" 401 " in read_all(sock)


def test_client_that_breaks_off_a_body_is_nobodys_fault_here(capsys: pytest.CaptureFixture[str]) -> None:
    reading, ends = threading.Event(), []

    def read(w: http.ResponseWriter, r: http.Request) -> None:
        reading.set()
        try:
            r.body.read()
        except OSError as err:
            ends.append(type(err))
            raise

    with serving(read) as server:
        with connect(server) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
            assert reading.wait(_TIMEOUT)
            reset(sock)
        wait_until_equal("connections", lambda: server.connections(), 0)
    assert ends == [http.ClientGone]
    assert "panic" not in capsys.readouterr().err


def test_pipelined_requests() -> None:
    with serving(echo) as server:
        found = exchange(
            server, b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
    assert re.findall(rb"\r\n\r\n(GET /\d) ", found) == [b"GET /1", b"GET /2"]


def test_chunked_body_and_expect_continue() -> None:
    request = CLOSING % (b"POST", b"/c") + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    with serving(echo) as server, connect(server) as sock:
        sock.sendall(request)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(b"3\r\nabc\r\n0\r\n\r\n")
        assert read_all(sock).endswith(b"POST /c abc")


def test_old_client() -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.write(b"a")
        w.flush()
        w.write(b"b")

    with serving(handler) as server:
        head, _, body = exchange(server, b"GET / HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert body == b"ab"
    assert b"chunked" not in head


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (2 << 20) + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * (2 << 20), 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 9_000_000, 413),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"CONNECT /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ],
    ids=str,
)
def test_bad_requests(data: bytes, status: int) -> None:
    with serving(echo) as server, connect(server) as sock:
        # The server may have responded and closed before the client has sent everything.
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = sock.recv(100)
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_unread_body_does_not_become_a_request() -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.write(b"no")

    smuggled = b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    with serving(handler) as server:
        data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + smuggled
        assert exchange(server, data).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"read_header_timeout": 0.05}, b""),
        ({"read_header_timeout": 0.05}, b"GET / HTTP/1.1\r\nHost:"),
        ({"idle_timeout": 0.05}, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ({"body_timeout": 0.05}, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
    ],
    ids=["nothing", "half a head", "nothing more", "half a body"],
)
def test_clients_that_stop_sending(options: dict[str, Any], data: bytes) -> None:
    with serving(echo, **options) as server:
        exchange(server, data)
        wait_until_equal("connections", lambda: server.connections(), 0)


def test_a_head_that_drips_is_not_waited_for() -> None:
    with serving(echo, read_header_timeout=0.2) as server, connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r"reset|pipe"):
            while True:
                sock.sendall(b"X: 1\r\n")
                threading.Event().wait(0.02)


def test_context_ends_when_the_client_goes() -> None:
    ended = threading.Event()

    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.flush()
        if r.ctx.wait(_TIMEOUT):
            ended.set()

    with serving(handler) as server:
        with connect(server) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            sock.recv(100)
        assert ended.wait(_TIMEOUT)
        wait_until_equal("connections", lambda: server.connections(), 0)


def test_close_ends_running_requests() -> None:
    running = threading.Event()

    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        running.set()
        assert r.ctx.wait(_TIMEOUT)

    with serving(handler) as server, connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert running.wait(_TIMEOUT)


def test_serving_ends_with_the_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    server = http.Server(echo, name="test")
    server.listen("127.0.0.1", 0)
    thread = golang.go(server.serve, ctx, name="test-server")
    with connect(server) as sock:
        wait_until_equal("connections", lambda: server.connections(), 1)
        cancel()
        thread.join(_TIMEOUT)
        assert not thread.is_alive()
        assert read_all(sock) == b""
    server.close()


def test_response_that_is_cut_short_is_no_whole() -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.headers.set("Content-Length", "5")
        w.write(b"abc")

    with serving(handler) as server, connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_all(sock).endswith(b"\r\n\r\nabc")


def test_taken_over_connection() -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        conn, early = w.hijack()
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + early)
        while data := conn.recv(100):
            conn.sendall(data.upper())
        conn.sendall(b"end")

    head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    with serving(handler) as server, connect(server) as sock:
        sock.sendall(head + b"early")
        found = b""
        while not found.endswith(b"early"):
            found += sock.recv(100)
        sock.sendall(b"late")
        sock.shutdown(socket.SHUT_WR)
        assert found + read_all(sock) == b"HTTP/1.1 101 Switching Protocols\r\n\r\nearlyLATEend"


def test_an_idle_connection_makes_way_at_the_limit() -> None:
    with serving(echo, limits=http.Limits(connections=1)) as server, connect(server) as idle, connect(server) as other:
        assert read_all(idle) == b""
        other.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200")


def test_busy_connections_keep_their_place_at_the_limit() -> None:
    running, release = threading.Event(), threading.Event()

    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        running.set()
        release.wait(_TIMEOUT)

    with serving(handler, limits=http.Limits(connections=1)) as server, connect(server) as busy:
        busy.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert running.wait(_TIMEOUT)
        with connect(server) as other:
            assert read_all(other) == b""
        release.set()
        assert read_all(busy).startswith(b"HTTP/1.1 200")


def test_one_user_cannot_hold_all_connections() -> None:
    """A user who follows as many logs as there are connections gets an error, and other users are served."""

    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        r.admit(r.headers.get("User"), r.path, lasting=r.path == "/logs")
        w.write(b"begun")
        w.flush()
        if r.path == "/logs":
            r.ctx.wait(_TIMEOUT)

    request = b"GET /%b HTTP/1.1\r\nHost: a\r\nUser: %b\r\n\r\n"
    limits = http.Limits(connections=12, reserved=4, per_user_and_kind=6)
    with serving(handler, limits=limits, authenticates=True) as server, contextlib.ExitStack() as stack:
        answers = []
        for _ in range(12):
            sock = stack.enter_context(connect(server))
            sock.sendall(request % (b"logs", b"a"))
            answers.append(sock.recv(100)[9:12])
        assert answers == 6 * [b"200"] + 6 * [b"429"]
        for user, path in ((b"a", b"exec"), (b"b", b"logs"), (b"c", b"metrics")):
            sock = stack.enter_context(connect(server))
            sock.sendall(request % (path, user))
            assert sock.recv(100)[9:12] == b"200"


def test_refusals_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server disconnects a client that sends requests and reads no response."""
    monkeypatch.setattr(connection, "REFUSAL_WRITE_TIMEOUT", 0.05)

    def refuse(w: http.ResponseWriter, r: http.Request) -> None:
        http.error(w, "Unauthorized", 401)

    with serving(refuse, authenticates=True) as server, connect(server) as sock:
        with contextlib.suppress(ConnectionError):
            while True:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        wait_until_equal("connections", lambda: server.connections(), 0)


def test_answer_of_which_nothing_is_taken_is_given_up_unless_it_is_a_stream() -> None:
    # The body is larger than the buffers of the sockets, which the kernel limits to 32 MiB and 4 MiB.
    body = b"x" * (48 << 20)
    asked: list[str] = []

    def answer(w: http.ResponseWriter, r: http.Request) -> None:
        asked.append(r.path)
        if r.path == "/stream":
            w.let_client_pause()
        w.write(body)

    with serving(answer, stall_timeout=0.05) as server, connect(server) as stream, connect(server) as plain:
        stream.sendall(b"GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert stream.recv(12) == b"HTTP/1.1 200"
        plain.sendall(b"GET /pods HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for("the request has come", lambda: "/pods" in asked)
        wait_until_equal("connections", lambda: server.connections(), 1)
        assert len(read_all(stream)) > len(body)
        with contextlib.suppress(ConnectionError):
            assert len(read_all(plain)) < len(body)


@pytest.mark.parametrize(
    "err", [OSError("gone"), RuntimeError("no thread"), MemoryError(), ValueError("odd")], ids=repr
)
@pytest.mark.parametrize("place", ["server._keep_alive", "server.source_of", "connection.Connection.serve"])
def test_what_fails_for_one_client_fails_for_it_alone(
    monkeypatch: pytest.MonkeyPatch, place: str, err: Exception
) -> None:
    def fail(*_: object) -> None:
        raise err

    with serving(echo) as server:
        with monkeypatch.context() as faulty:
            faulty.setattr(f"pkg.golang.http.{place}", fail)
            with connect(server) as sock:
                assert read_all(sock) == b""
        assert exchange(server, CLOSING % (b"GET", b"/") + b"\r\n").startswith(b"HTTP/1.1 200")
        wait_until_equal("connections", lambda: server.connections(), 0)


def test_a_taken_port_is_an_error() -> None:
    with serving(echo) as server:
        other = http.Server(echo, name="other")
        with pytest.raises(OSError, match=rf"listen tcp 127.0.0.1:{server.port}: bind: address already in use"):
            other.listen("127.0.0.1", server.port)
        other.close()


def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "debug.sock"
    path.touch()
    with serving(lambda w, r: w.write(str(r.remote_addr).encode()), unix=str(path)):
        assert os.stat(path).st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert read_all(sock).endswith(b"None")
    assert not path.exists()


def test_a_server_that_has_ended_leaves_the_socket_of_its_successor(tmp_path: Path) -> None:
    path = str(tmp_path / "debug.sock")
    ctx, cancel = golang.with_cancel(golang.background())
    server = http.Server(echo, name="test")
    server.listen_unix(path)
    cancel()
    server.serve(ctx)
    with serving(echo, unix=path):
        server.close()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            sock.sendall(CLOSING % (b"GET", b"/") + b"\r\n")
            assert read_all(sock).endswith(b"GET / ")


def test_nothing_is_left_open() -> None:
    before = open_files()
    with serving(echo) as server, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(server)).sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until_equal("connections", lambda: server.connections(), 20)
    wait_for("no open file is left", lambda: open_files() <= before)


def test_a_connection_that_gets_no_thread_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started for a connection, it is closed, and later connections are served."""

    def no_thread(*_: object, **__: object) -> golang.Thread:
        raise RuntimeError("can't start new thread")

    request = CLOSING % (b"GET", b"/") + b"\r\n"
    with serving(echo) as server:
        assert exchange(server, request).startswith(b"HTTP/1.1 200")
        with monkeypatch.context() as full:
            full.setattr(golang, "go", no_thread)
            with connect(server) as sock:
                assert read_all(sock) == b""
        assert exchange(server, request).startswith(b"HTTP/1.1 200")


def test_memory_is_given_back_after_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    with serving(echo) as server:
        monkeypatch.setattr(debug, "free_os_memory", lambda: given_back.append(server.connections()))
        for crowds in range(1, 3):
            with contextlib.ExitStack() as stack:
                for _ in range(70):
                    stack.enter_context(connect(server))
                wait_until_equal("connections", lambda: server.connections(), 70)
                assert len(given_back) == crowds - 1
            wait_until_equal("connections", lambda: server.connections(), 0)
            wait_until_equal("times that memory was given back", lambda: len(given_back), crowds)
    assert max(given_back) <= 16


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory) -> SSL.Context:
    directory = tmp_path_factory.mktemp("tls")
    cert, key = Authority().issue("node", ips=["127.0.0.1"])
    (directory / "tls.crt").write_bytes(cert)
    (directory / "tls.key").write_bytes(key)
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.use_certificate_chain_file(str(directory / "tls.crt"))
    context.use_privatekey_file(str(directory / "tls.key"))
    # Request a certificate, and accept any.
    context.set_verify(SSL.VERIFY_PEER, lambda *_: True)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    return context


def client_context(tmp_path: Path, pair: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        (tmp_path / "client.pem").write_bytes(pair[0] + pair[1])
        context.load_cert_chain(tmp_path / "client.pem")
    return context


def test_tls_with_and_without_a_certificate(server_context: SSL.Context, tmp_path: Path) -> None:
    seen: list[list[bytes]] = []

    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        assert r.tls
        seen.append(r.peer_certificates)
        w.write(r.body.read())

    pair = Authority().issue("somebody")
    with serving(handler, tls_context=lambda: server_context) as server:
        for context in (client_context(tmp_path), client_context(tmp_path, pair)):
            with context.wrap_socket(connect(server)) as sock:
                body = b"#" * 300_000
                sock.sendall(CLOSING % (b"POST", b"/") + b"Content-Length: 300000\r\n\r\n" + body)
                assert read_all(sock).count(b"#") == len(body)
    assert seen == [[], [ssl.PEM_cert_to_DER_cert(pair[0].decode())]]


def test_a_client_with_too_many_certificates(server_context: SSL.Context, tmp_path: Path) -> None:
    """The connection ends, because OpenSSL makes megabytes of the certificates that fit into a handshake."""
    cert, key = Authority().issue("somebody")
    others = b"".join(Authority().issue(f"{number}")[0] for number in range(tlsconn.MAX_PEER_CERTIFICATES))
    request = CLOSING % (b"GET", b"/") + b"\r\n"
    with serving(echo, tls_context=lambda: server_context) as server:
        for chain, is_right in ((cert, True), (cert + others, False)):
            client = client_context(tmp_path, (chain, key))
            answer = b""
            with contextlib.suppress(OSError), client.wrap_socket(connect(server)) as sock:
                sock.sendall(request)
                answer = read_all(sock)
            assert answer.startswith(b"HTTP/1.1 200 ") is is_right


def test_certificate_that_cannot_be_decoded(server_context: SSL.Context, tmp_path: Path) -> None:
    """The handler decides about a certificate that cannot be decoded."""
    seen: list[list[bytes]] = []
    cert, key = Authority().issue("somebody")
    version_3, version_9 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09"
    odd = ssl.PEM_cert_to_DER_cert(cert.decode()).replace(version_3, version_9, 1)
    client = client_context(tmp_path, (ssl.DER_cert_to_PEM_cert(odd).encode(), key))
    with (
        serving(lambda w, r: seen.append(r.peer_certificates), tls_context=lambda: server_context) as server,
        client.wrap_socket(connect(server)) as sock,
    ):
        sock.sendall(CLOSING % (b"GET", b"/") + b"\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 200 ")
    assert seen == [[odd]]


def test_half_closed_tls(server_context: SSL.Context) -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        conn, early = w.hijack()
        conn.sendall(b"first")
        conn.shutdown_write()
        received = early
        while data := conn.recv(100):
            received += data
        after.append(received)

    after: list[bytes] = []
    client = SSL.Context(SSL.TLS_CLIENT_METHOD)
    with serving(handler, tls_context=lambda: server_context) as server, connect(server) as raw:
        raw.settimeout(None)
        tls = SSL.Connection(client, raw)
        tls.set_connect_state()
        tls.do_handshake()
        tls.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert tls.recv(100) == b"first"
        with pytest.raises(SSL.ZeroReturnError):
            tls.recv(100)
        tls.sendall(b"still here")
        tls.shutdown()
        wait_for("the last bytes of the client", lambda: after)
    assert after == [b"still here"]


def test_connection_that_does_not_block(server_context: SSL.Context, tmp_path: Path) -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        conn, _ = w.hijack()
        conn.setblocking(False)
        with pytest.raises(BlockingIOError):
            conn.recv(1)
        with pytest.raises(BlockingIOError):
            while True:
                conn.send(b"x" * 65536)
        conn.setblocking(True)
        conn.settimeout(0.05)
        with pytest.raises(TimeoutError):
            conn.recv(1)
        done.set()

    for context in (None, client_context(tmp_path)):
        done = threading.Event()
        options: dict[str, Any] = {"tls_context": lambda: server_context} if context else {}
        with serving(handler, **options) as server, connect(server) as raw:
            sock = context.wrap_socket(raw) if context else raw
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert done.wait(_TIMEOUT)
            sock.close()


def test_http_on_the_tls_port(server_context: SSL.Context) -> None:
    with serving(echo, tls_context=lambda: server_context) as server:
        answer = exchange(server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01\x02\x00", b"\x00" * 100], ids=["nothing", "half", "no TLS"])
def test_handshakes_that_do_not_end(server_context: SSL.Context, data: bytes) -> None:
    with serving(echo, tls_context=lambda: server_context, read_header_timeout=0.05) as server:
        with connect(server) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            read_all(sock)
        wait_until_equal("connections", lambda: server.connections(), 0)


def test_few_clients_that_nobody_knows_are_worked_for_at_the_same_time(server_context: SSL.Context) -> None:
    lock, go_on = threading.Lock(), threading.Event()
    now: list[int] = [0]
    seen: list[int] = []

    def work() -> SSL.Context:
        with lock:
            now[0] += 1
            seen.append(now[0])
        go_on.wait(_TIMEOUT)
        with lock:
            now[0] -= 1
        return server_context

    with contextlib.ExitStack() as clients, serving(echo, tls_context=work) as server:
        for _ in range(5 * MAX_TURNS):
            clients.enter_context(connect(server))
        wait_for(
            "all are connected, and as many are worked for as may be",
            lambda: server.connections() == 5 * MAX_TURNS and now[0] >= MAX_TURNS,
        )
        go_on.set()
        wait_for("all are served", lambda: len(seen) == 5 * MAX_TURNS)
    assert max(seen) == MAX_TURNS


@pytest.mark.parametrize(
    ("of", "name", "field"),
    [(transfer.MessageBody, "next_part", b"Content-Length: 9"), (httpconn, "drain", b"Transfer-Encoding: chunked")],
)
def test_few_clients_that_nobody_knows_are_read_from_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, of: Any, name: str, field: bytes
) -> None:
    """The server reads from only a few unauthenticated clients at the same time.

    The limit also holds after the response: the rest of an unread body may arrive byte by byte.
    """
    lock, go_on = threading.Lock(), threading.Event()
    now: list[int] = [0]
    seen: list[int] = []

    def read(*_: object) -> bytes:
        with lock:
            now[0] += 1
            seen.append(now[0])
        go_on.wait(_TIMEOUT)
        with lock:
            now[0] -= 1
        return b""

    def refuse(w: http.ResponseWriter, r: http.Request) -> None:
        http.error(w, "Unauthorized", 401)

    monkeypatch.setattr(of, name, read)
    with contextlib.ExitStack() as clients, serving(refuse, authenticates=True) as server:
        for _ in range(5 * MAX_TURNS):
            client = clients.enter_context(connect(server))
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n")
        wait_for("as many are read from as may be", lambda: now[0] >= MAX_TURNS)
        go_on.wait(0.2)
        go_on.set()
        wait_for("all are served", lambda: len(seen) >= 5 * MAX_TURNS)
    assert max(seen) == MAX_TURNS


def test_a_body_that_comes_in_small_pieces_is_not_skipped_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_part(_: transfer.MessageBody) -> bytes:
        threading.Event().wait(0.1)
        return bytes(1024)

    monkeypatch.setattr(transfer.MessageBody, "next_part", next_part)
    with serving(lambda w, r: http.error(w, "Unauthorized", 401), authenticates=True) as server:
        began = time.monotonic()
        answer = exchange(server, b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert time.monotonic() - began < _TIMEOUT / 2


def test_clients_that_wait_leave_their_turns_to_others() -> None:
    """Clients of four kinds leave their turns to others.

    They are idle, wait for a response, were refused and still send, or have sent a partial head.
    """
    go_on, held_up = threading.Event(), threading.Event()

    def answer(w: http.ResponseWriter, r: http.Request) -> None:
        if r.path == "/slow" and not go_on.wait(_TIMEOUT):
            held_up.set()
        w.write(b"done")

    slow = CLOSING % (b"GET", b"/slow") + b"\r\n"
    with contextlib.ExitStack() as clients, serving(answer, authenticates=True) as server:
        for said in (b"", slow, b"\x16" + bytes(1000), CLOSING % (b"GET", b"/")):
            for _ in range(MAX_TURNS):
                clients.enter_context(connect(server)).sendall(said)
        wait_for("all are connected", lambda: server.connections() >= 3 * MAX_TURNS)
        assert exchange(server, CLOSING % (b"GET", b"/") + b"\r\n").endswith(b"done")
        assert not held_up.is_set()
        go_on.set()


def test_no_certificate_to_serve_with() -> None:
    def no_context() -> SSL.Context:
        raise ValueError("no serving certificate available")

    with serving(echo, tls_context=no_context) as server:
        exchange(server, b"")
