"""Test responses that are late, truncated, invalid or endless."""

from __future__ import annotations

import gzip
import itertools
import socket
import ssl
from pathlib import Path

import pytest

from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import rest
from pkg.client_go.rest import client as client_
from pkg.client_go.rest import testing, warnings, with_retry
from pkg.client_go.tools import pager
from pkg.golang.testing import frames_kept_after

_WAIT = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def client(url: str) -> rest.RESTClient:
    return rest.RESTClient(rest.Config(host=url, qps=-1, tls_client_config=rest.TLSClientConfig(insecure=True)))


def get(url: str, verb: str = "GET") -> bytes:
    one = client(url)
    try:
        return one.request(golang.background(), verb, "/")
    finally:
        one.close_idle_connections()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_retry, "_AFTER_CUT", 0)


def freeze(connection: socket.socket) -> None:
    """Receive everything and send nothing, until the other end closes the connection."""
    while connection.recv(1 << 16):
        pass


def test_frozen_server_does_not_hold_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_, "ATTEMPT_TIMEOUT", 0.05)
    frozen = testing.serve_raw(lambda connection, _: freeze(connection))
    with frozen as url, pytest.raises(rest.TransportError, match="client connection lost") as caught:
        get(url, "PATCH")
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]
)
def test_answer_that_is_the_last_of_its_connection(head: bytes) -> None:
    """The last response of a connection is read completely.

    The standard library detaches the connection before it reads the body.
    """

    def handle(connection: socket.socket, _: int) -> None:
        connection.recv(1 << 16)
        connection.sendall(head)
        connection.sendall(b"x" * 100_000)

    with testing.serve_raw(handle) as url:
        assert get(url) == b"x" * 100_000


def test_read_is_repeated_on_another_connection_than_the_frozen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = golang.Channel[None](1)

    def handle(connection: socket.socket, number: int) -> None:
        testing.read_head(connection)
        if number < 2:
            connection.sendall(OK)
            freeze(connection)
            kept.try_send(None)
        else:
            monkeypatch.setattr(client_, "ATTEMPT_TIMEOUT", _WAIT)
            connection.sendall(OK)

    with testing.serve_raw(handle) as url:
        one = client(url)
        # Two connections are idle, and the server behind both of them hangs from now on.
        first, second = (one.stream(golang.background(), "GET", "/") for _ in range(2))
        for stream in (first, second):
            one._pool.put(stream._connection)
            stream._response.close()
            stream._forget()
        monkeypatch.setattr(client_, "ATTEMPT_TIMEOUT", 0.05)
        assert one.request(golang.background(), "GET", "/") == b"{}"
        assert kept.recv(_WAIT)[1], "the idle connection to the frozen server has been closed too"
        one.close_idle_connections()


@pytest.mark.parametrize(
    ("answer", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OK[:-2], b""),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"trailer: x\r\n"),
    ],
)
def test_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, answer: bytes, drop: bytes) -> None:
    monkeypatch.setattr(client_, "ATTEMPT_TIMEOUT", 0.2)

    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(answer)
        connection.settimeout(0.01)
        while True:
            connection.sendall(drop)
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                pass  # The server still listens.

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError, match="client connection lost"):
        get(url, "POST")


@pytest.mark.parametrize("code", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_answer_comes_after_what_is_none_yet(code: bytes) -> None:
    """A final response after an informational one belongs to the same request.

    It must not become the response to the next request on the connection, which may concern another namespace.
    """

    def handle(connection: socket.socket, _: int) -> None:
        for answer in (OK, OK.replace(b"{}", b"[]")):
            testing.read_head(connection)
            connection.sendall(b"HTTP/1.1 " + code + b"\r\nLink: <x>\r\n\r\n" + answer)
        freeze(connection)

    with testing.serve_raw(handle) as url:
        one = client(url)
        assert [one.request(golang.background(), "GET", "/") for _ in range(2)] == [b"{}", b"[]"]
        one.close_idle_connections()


def test_answer_that_switches_protocols_is_none() -> None:
    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        freeze(connection)

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError, match="switched protocols unasked"):
        get(url)


@pytest.mark.parametrize("size", [1, len(b"HTTP/1.1 200"), OK.index(b"\r\n") + 2, OK.index(b"\r\n\r\n") + 2])
def test_head_that_breaks_off_is_no_answer(size: int) -> None:
    """A truncated head is an error.

    Without the length of its body it would look like an empty response.
    """

    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(OK[:size])

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError, match="EOF"):
        get(url, "DELETE")


def test_what_comes_after_an_answer_is_not_the_next_one(tmp_path: Path) -> None:
    body = b"x" * 9000  # This is more than the read-ahead buffer, and so little that TLS has all of it in one record.

    def answer(request: testing.Request) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        request.handler.wfile.write(head + body + OK)

    with testing.serve(answer, testing.new_pair("server"), path=tmp_path) as server:
        one = client(server.url)
        assert [one.request(golang.background(), "GET", "/") for _ in range(2)] == [body, body]
        one.close_idle_connections()


def test_silent_watch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_, "WATCH_IDLE_TIMEOUT", 0.05)

    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(CHUNKED + b"4\r\n{}\n\n\r\n")
        freeze(connection)

    with testing.serve_raw(handle) as url:
        stream = client(url).stream(golang.background(), "GET", "/", watch=True)
        assert stream.readline() == b"{}"
        with pytest.raises(rest.TransportError):
            stream.readline()
        stream.close()


@pytest.mark.parametrize("line", [b"-1", b"0x2", b"1_0", b"+2", b"", b"f" * 17, b"2" + b" " * 5000])
def test_chunk_sizes_of_no_sense(line: bytes) -> None:
    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(CHUNKED + line + b"\r\n{}\r\n0\r\n\r\n")

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError, match="invalid chunk size"):
        get(url)


@pytest.mark.parametrize("header", [b"Content-Length: -2", b"Content-Length: 1_0", b"Transfer-Encoding: br, chunked"])
def test_answers_of_no_certain_length(header: bytes) -> None:
    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n{}")

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError, match=r"bad Content-Length|unsupported"):
        get(url)


def test_header_that_never_ends() -> None:
    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in itertools.count():
            connection.sendall(b"h%d: %s\r\n" % (number, b"v" * 1000))

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError, match="got more than 100 headers"):
        get(url)


@pytest.mark.parametrize("compressed", [False, True])
def test_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch, compressed: bool) -> None:
    monkeypatch.setattr(client_, "MAX_RESPONSE_BYTES", 1 << 20)
    body = b"x" * ((1 << 20) + 1)
    encoding = "gzip" if compressed else "identity"
    body = gzip.compress(body) if compressed else body
    serving = testing.serve(lambda request: request.answer(body=body, Content_Encoding=encoding))
    with serving as server, pytest.raises(rest.TransportError, match="longer than 1048576 bytes"):
        get(server.url)


def test_compressed_answers() -> None:
    whole = gzip.compress(b'{"a":') + gzip.compress(b"1}")
    with testing.serve(lambda request: request.answer(body=whole, Content_Encoding="gzip")) as server:
        assert get(server.url) == b'{"a":1}'
    serving = testing.serve(lambda request: request.answer(body=whole[:-9], Content_Encoding="gzip"))
    with serving as server, pytest.raises(rest.TransportError):
        get(server.url)


def test_event_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_, "MAX_EVENT_BYTES", 1 << 20)

    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(CHUNKED)
        while True:
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    with testing.serve_raw(handle) as url:
        stream = client(url).stream(golang.background(), "GET", "/", watch=True)
        with pytest.raises(ValueError, match="longer than maximum allowed size"):
            stream.readline()
        stream.close()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("1000000", 60), ("9" * 5000, 60), ("-1", None), ("soon", None), ("\u0663", None), ("", None)],
)
def test_retry_after(value: str, seconds: int | None) -> None:
    assert with_retry.retry_after_seconds({"Retry-After": value}) == seconds


def test_redirects_are_not_followed() -> None:
    with testing.serve(lambda request: request.answer()) as elsewhere:
        serving = testing.serve(lambda request: request.answer(302, Location=elsewhere.url))
        with serving as server, pytest.raises(apierrors.StatusError):
            get(server.url)
        assert not elsewhere.requests


def test_cut_during_the_handshake_is_tried_again(tmp_path: Path) -> None:
    pair = testing.new_pair("server")
    (tmp_path / "pair").write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair")

    def handle(connection: socket.socket, number: int) -> None:
        if number == 0:
            # The whole TLS greeting must be read, because unread data would reset the connection.
            connection.recv(1 << 16)
            return
        with context.wrap_socket(connection.dup(), server_side=True) as secure:
            testing.read_head(secure)
            if number > 1:
                secure.sendall(OK)

    with testing.serve_raw(handle) as url:
        assert get(url.replace("http", "https")) == b"{}"


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_cut_leaves_nothing_for_the_garbage_collector(verb: str) -> None:
    """A broken connection leaves no frames for the garbage collector.

    The frames would hold all data of the caller, such as the files of a volume.
    """

    def handle(connection: socket.socket, number: int) -> None:
        testing.read_head(connection)
        if number > 0:
            connection.sendall(OK)

    with testing.serve_raw(handle) as url:
        assert frames_kept_after(lambda: get(url, verb)) == []


def test_connection_that_was_closed_by_us_is_tried_again() -> None:
    tracker = rest.ConnectionTracker()

    def handle(connection: socket.socket, number: int) -> None:
        testing.read_head(connection)
        if number == 0:
            tracker.close_all()
        else:
            connection.sendall(OK)

    with testing.serve_raw(handle) as url:
        one = rest.RESTClient(rest.Config(host=url, connections=tracker))
        assert one.request(golang.background(), "GET", "/") == b"{}"
        one.close_idle_connections()


def test_nonsense_is_not_asked_for_again() -> None:
    asked: list[int] = []

    def handle(connection: socket.socket, number: int) -> None:
        testing.read_head(connection)
        asked.append(number)
        connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

    with testing.serve_raw(handle) as url, pytest.raises(rest.TransportError):
        get(url)
    assert asked == [0]


def test_warnings_are_forgotten() -> None:
    logger = warnings.WarningLogger()
    for number in range(3 * warnings.MAX_WARNINGS):
        logger(299, "-", f"{number} " + "x" * 100_000)
    assert len(logger._logged) == warnings.MAX_WARNINGS
    assert max(map(len, logger._logged)) == warnings.MAX_WARNING_LENGTH


def test_warning_with_much_space_takes_no_time() -> None:
    told: list[str] = []
    warnings.handle_warnings(['299 - "a"' + " " * 60_000 + "x"], lambda code, agent, text: told.append(text))
    warnings.handle_warnings(["299" + " " * 60_000 + "x"], lambda code, agent, text: told.append(text))
    assert not told


def test_list_that_never_ends() -> None:
    pages = itertools.count(1)

    def page(ctx: golang.Context, options: object) -> pager.List[object]:
        metadata = metav1.ListMeta(continue_=f"token-{next(pages)}")
        return pager.List(metadata, [])

    with pytest.raises(ValueError, match="more than"):
        pager.ListPager(page).list(golang.background(), metav1.ListOptions())
    assert next(pages) == pager.MAX_PAGES + 1
