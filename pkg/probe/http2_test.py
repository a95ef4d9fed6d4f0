"""Test HTTP probes over HTTP/2, against servers that speak nothing else."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from framework import memory
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, ResponseReceived
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from kubelet.lifecycle import HTTPClient
from pkg import golang
from pkg.golang.testing import frames_kept_after
from pkg.probe import BrokenAnswerError, Result, dialer, http2, httpclient, probe_http
from pkg.probe.testing import HOST, listening

CTX = golang.background()
# The unit is seconds; the time is long enough for any machine.
TIMEOUT = 30.0
SELF_SIGNED = Path(__file__).parents[2] / "test/data/tls/self-signed.pem"

Fields = dict[str, str]
Answer = Callable[[H2Connection, Fields], object]


@contextmanager
def serving(answer: Answer, protocol: str = "h2") -> Iterator[str]:
    """Run a server that prepares its response to each request with `answer`; yield its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    context.set_alpn_protocols([protocol])

    def talk_securely(connection: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as sock:
            talk(sock, answer)

    with listening(talk_securely) as port:
        yield f"https://{HOST}:{port}"


def talk(sock: ssl.SSLSocket, answer: Answer) -> None:
    if sock.selected_alpn_protocol() != "h2":
        sock.recv(65536)
        sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        return
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    sock.sendall(server.data_to_send())
    while data := sock.recv(65536):
        for event in server.receive_data(data):
            if isinstance(event, RequestReceived):
                answer(server, http2.text_of(event.headers))
        sock.sendall(server.data_to_send())


def answering(status: str, body: bytes = b"", part: int = 16384, **fields: str) -> Answer:
    """Respond with a body in parts of `part` bytes."""

    def answer(server: H2Connection, request: Fields) -> None:
        server.send_headers(1, [(":status", status), *fields.items()], end_stream=not body)
        for start in range(0, len(body), part):
            server.send_data(1, body[start : start + part], end_stream=start + part >= len(body))

    return answer


def test_request() -> None:
    seen: list[Fields] = []

    def answer(server: H2Connection, request: Fields) -> None:
        seen.append(request)
        server.send_headers(1, [(":status", "103"), ("link", "x")])
        answering("200", b"fine")(server, request)

    headers = [("Accept", "*/*"), ("Connection", "close"), ("Host", "name"), ("X-Ä", "ö")]
    with serving(answer) as url:
        assert probe_http(CTX, f"{url}/a b?c", headers[:-1], TIMEOUT) == (Result.SUCCESS, "fine")
        assert probe_http(CTX, url, headers, TIMEOUT)[0] is Result.FAILURE, "no name of a header"
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.SUCCESS, "fine")
    pseudo = {":method": "GET", ":scheme": "https"}
    assert seen == [
        {**pseudo, ":path": "/a%20b?c", ":authority": "name", "accept": "*/*"},
        {**pseudo, ":path": "/", ":authority": url.removeprefix("https://")},
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answering("204"), (Result.SUCCESS, "")),
        (answering("500", b"no"), (Result.FAILURE, "HTTP probe failed with statuscode: 500")),
        (answering("200", b"x" * 60_000), (Result.SUCCESS, "x" * httpclient.MAX_RESPONSE_BODY_LENGTH)),
        (
            answering("302", location="https://elsewhere/"),
            (Result.WARNING, "Probe terminated redirects, Response body: "),
        ),
    ],
)
def test_answers(answer: Answer, expected: tuple[Result, str]) -> None:
    with serving(answer) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == expected


def test_body_in_more_parts_than_are_read() -> None:
    with serving(answering("200", b"x" * 1000, part=1)) as url:
        result, output = probe_http(CTX, url, [], TIMEOUT)
    assert result is Result.SUCCESS
    assert 0 < len(output) < 1000


def test_redirect_on_the_same_host() -> None:
    def answer(server: H2Connection, request: Fields) -> None:
        found = answering("200", b"fine") if request[":path"] == "/b" else answering("302", location="/b")
        found(server, request)

    with serving(answer) as url:
        assert probe_http(CTX, f"{url}/a", [], TIMEOUT) == (Result.SUCCESS, "fine")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda server, request: server.reset_stream(1, 7), "stream error: REFUSED_STREAM"),
        (lambda server, request: server.close_connection(2, last_stream_id=0), "prior goaway: code: INTERNAL_ERROR"),
        (answering("2OO"), "malformed response from server: malformed non-numeric status pseudo header"),
        (lambda server, request: [server.ping(bytes(8)) for _ in range(300)], "received more than 65536 bytes"),
    ],
)
def test_answers_that_are_none(answer: Answer, reason: str) -> None:
    with serving(answer) as url:
        result, output = probe_http(CTX, url, [], TIMEOUT)
    assert result is Result.FAILURE
    assert output.endswith(reason)


def test_body_that_breaks_off_says_nothing_of_the_container() -> None:
    def answer(server: H2Connection, request: Fields) -> None:
        server.send_headers(1, [(":status", "200")])
        server.send_data(1, b"x")
        server.reset_stream(1, 2)

    with serving(answer) as url:
        with pytest.raises(BrokenAnswerError, match="stream error: INTERNAL_ERROR"):
            probe_http(CTX, url, [], TIMEOUT)
        assert not frames_kept_after(lambda: probe_http(CTX, url, [], TIMEOUT))


def test_server_that_does_not_answer_in_time() -> None:
    with serving(lambda server, request: None) as url:
        result, output = probe_http(CTX, url, [], 0.3)
    assert result is Result.FAILURE
    assert output.endswith("(Client.Timeout exceeded while awaiting headers)")


def test_server_that_does_not_speak_http2_is_asked_as_before() -> None:
    with serving(answering("200"), protocol="http/1.1") as url:
        assert probe_http(CTX, url, [], TIMEOUT)[1] == "HTTP probe failed with statuscode: 403"


def test_hooks_do_not_speak_http2() -> None:
    seen: list[Fields] = []
    with serving(lambda server, request: seen.append(request)) as url:
        HTTPClient().do(CTX, url, [])
    assert seen == []


def test_headers_are_sent_as_they_are() -> None:
    """Headers are sent without compression.

    The library's compression would take time quadratic in the length and in the number of headers.
    """
    client, server = socket.socketpair()
    with client, server:
        conn = http2.ClientConn(dialer.Connection(CTX, client))
        # The server asks the client to remember any number of headers.
        table = int(SettingCodes.HEADER_TABLE_SIZE).to_bytes(2) + (2**31).to_bytes(4)
        settings = len(table).to_bytes(3) + b"\4" + bytes(5) + table
        server.sendall(2 * settings)
        conn.receive()
        conn.send_headers([("a-header", "its value")] * 2)
        conn.receive()
        client.shutdown(socket.SHUT_WR)
        sent = b"".join(iter(lambda: server.recv(1 << 16), b""))
    assert [sent.count(part) for part in (b"a-header", b"its value")] == [2, 2]


def hold_settings() -> None:
    """Open as many connections as one pod has, to servers that send unknown settings."""
    held = []
    for _ in range(8):
        client, server = socket.socketpair()
        conn = http2.ClientConn(dialer.Connection(CTX, client))
        for first in range(100, 10_100, 2500):
            settings = b"".join(number.to_bytes(2) + bytes(4) for number in range(first, first + 2500))
            server.sendall(len(settings).to_bytes(3) + b"\4" + bytes(5) + settings)
            conn.receive()
        held.append((server, conn))


def test_server_that_sends_many_settings() -> None:
    assert memory.peak_growth("pkg.probe.http2_test", "hold_settings") < 24


def test_header_costs_more_than_the_byte_that_stands_for_it() -> None:
    client, server = socket.socketpair()
    with client, server:
        conn = http2.ClientConn(dialer.Connection(CTX, client))
        server.sendall(frame(4, b"", stream=0))
        conn.start()
        conn.send_headers([(":method", "GET")], end=True)
        # These bytes are literals of :status 100 and of an indexed header, which each byte 190 then repeats.
        server.sendall(frame(1, b"\x08\x03100\x40\x01x\0" + b"\xbe" * 1900) * 30)
        received = 0
        with pytest.raises(http2.TooMuchError):
            while True:
                received += sum(len(event.headers) for event in conn.receive() if hasattr(event, "headers"))
    assert 1900 < received < 4000


def test_server_changes_the_size_of_its_table_of_headers_no_more_often_than_it_may() -> None:
    assert answer_after_changes(2) == {":status": "200"}
    with pytest.raises(ProtocolError, match="the size of the table was changed more than 100 times"):
        answer_after_changes(http2.MAX_TABLE_CHANGES + 1)


def answer_after_changes(count: int) -> Fields:
    """Return the headers of a response that follows `count` changes of the table's size."""
    client, server = socket.socketpair()
    with client, server:
        conn = http2.ClientConn(dialer.Connection(CTX, client))
        server.sendall(frame(4, b"", stream=0) + frame(1, b"\x20" * count + b"\x88"))
        conn.start()
        conn.send_headers([(":method", "GET")], end=True)
        return next(http2.text_of(event.headers) for event in conn.receive() if isinstance(event, ResponseReceived))


def frame(kind: int, body: bytes, stream: int = 1) -> bytes:
    """Return a frame with the flag END_HEADERS."""
    return len(body).to_bytes(3) + bytes((kind, 4)) + stream.to_bytes(4) + body


def test_name_of_a_code() -> None:
    assert [http2.code_name(code) for code in (0, 2, 99)] == ["NO_ERROR", "INTERNAL_ERROR", "unknown error code 99"]
