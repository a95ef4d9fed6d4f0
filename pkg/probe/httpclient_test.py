"""Test requests to malicious servers, and to servers that deviate from HTTP."""

from __future__ import annotations

import hashlib
import itertools
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from framework import memory
from OpenSSL import SSL

from kubelet.lifecycle import HTTPClient
from pkg import golang
from pkg.golang import net
from pkg.golang.http.tlsconn import TLSError
from pkg.golang.testing import COSTLY_CERTIFICATES, frames_kept_after, pem
from pkg.probe import BrokenAnswerError, Result, httpclient, probe_http, tlsclient
from pkg.probe.testing import HOST, listening

CTX = golang.background()
# The unit is seconds; the time is long enough for any machine.
TIMEOUT = 30.0
SELF_SIGNED = Path(__file__).parents[2] / "test/data/tls/self-signed.pem"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BLOCK = b"x" * 65536
ENDLESS = itertools.repeat(BLOCK)

# Each function yields the pieces that a server sends. An endless response ends when the client closes the connection.
HOSTILE: dict[str, Callable[[], Iterable[bytes]]] = {
    "negative chunk": lambda: itertools.chain([CHUNKED + b"-1\r\n"], ENDLESS),
    "chunk without end": lambda: itertools.chain([CHUNKED + b"ffffffffffffffff\r\n"], ENDLESS),
    "chunk line without end": lambda: itertools.chain([CHUNKED], ENDLESS),
    "chunk length of many digits": lambda: itertools.chain([CHUNKED], itertools.repeat(b"0" * 65536)),
    "chunk extensions without end": lambda: itertools.chain(
        [CHUNKED], itertools.repeat(b"1;" + b"y" * 4000 + b"\r\nx\r\n")
    ),
    "trailer without end": lambda: itertools.chain([CHUNKED + b"0\r\n"], itertools.repeat(b"X: y\r\n" * 1000)),
    "body without end": lambda: itertools.chain([OK + b"\r\n"], ENDLESS),
    "body of a large length": lambda: itertools.chain([OK + b"Content-Length: 9223372036854775807\r\n\r\n"], ENDLESS),
    "status line without end": lambda: ENDLESS,
    "header without end": lambda: itertools.chain([OK + b"X: "], ENDLESS),
    "headers without end": lambda: itertools.chain([OK], itertools.repeat(b"Location: /x\r\n" * 1000)),
    "1xx responses without end": lambda: itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 1000),
}


@contextmanager
def serving(answer: Callable[[], Iterable[bytes]], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a server that sends the pieces of `answer` to each client; yield its URL."""

    def talk(connection: socket.socket) -> None:
        with suppress(OSError), connection if context is None else context.wrap_socket(connection, True) as sock:
            sock.recv(65536)
            for piece in answer():
                sock.sendall(piece)

    with listening(talk) as port:
        yield f"http{'s' if context else ''}://{HOST}:{port}"


def probe_hostile(name: str) -> None:
    """Probe the hostile server, and run a hook against it, several times."""
    with serving(HOSTILE[name]) as url:
        for _ in range(5):
            try:
                _, output = probe_http(CTX, url, [], TIMEOUT)
                assert len(output) <= httpclient.MAX_RESPONSE_BODY_LENGTH
            except BrokenAnswerError:
                pass
            try:
                HTTPClient().do(CTX, url, [])
            except httpclient.HTTPRequestError:
                pass


@pytest.mark.parametrize("name", HOSTILE)
def test_answer_of_a_hostile_server_stays_under_16_mib(name: str) -> None:
    assert memory.peak_growth("pkg.probe.httpclient_test", "probe_hostile", name) < 16


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (CHUNKED + b"-1\r\nx", "invalid byte in chunk length"),
        (CHUNKED + b" 1\r\nx", "invalid byte in chunk length"),
        (CHUNKED + b"1_0\r\nx", "invalid byte in chunk length"),
        (CHUNKED + b"0x1\r\nx", "invalid byte in chunk length"),
        (CHUNKED + b"11111111111111111\r\nx", "http chunk length too large"),
        (CHUNKED + b"1" * 5000, "header line too long"),
        (CHUNKED + b"1\r\nxyz\r\n", "malformed chunked encoding"),
        (CHUNKED + b"5\r\nab", "unexpected EOF"),
        (CHUNKED + b"1\r\nx\r\n0\r\n", "unexpected EOF reading trailer"),
        (CHUNKED + b"0\r\n" + b"X: y\r\n" * 1000, "suspiciously long trailer"),
        (CHUNKED + b"1;" + b"y" * 4000 + b"\r\nx\r\n", "unexpected EOF"),
        (CHUNKED + (b"1;" + b"y" * 4000 + b"\r\nx\r\n") * 5, "chunked encoding contains too much non-data"),
        (OK + b"Content-Length: 5\r\n\r\nab", "unexpected EOF"),
    ],
)
def test_body_that_breaks_off(answer: bytes, fault: str) -> None:
    with serving(lambda: [answer]) as url, pytest.raises(BrokenAnswerError, match=fault):
        probe_http(CTX, url, [], TIMEOUT)


@pytest.mark.parametrize("tls", [False, True])
def test_nothing_stays_of_a_body_that_breaks_off(tls: bool) -> None:
    answer = CHUNKED + b"5\r\nab"
    with serving(lambda: [answer], server_context() if tls else None) as url:
        assert not frames_kept_after(lambda: probe_http(CTX, url, [], TIMEOUT))
        assert not frames_kept_after(lambda: HTTPClient().do(CTX, url, []))


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (CHUNKED + b"3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\n\r\n", "abc0123456789"),
        (CHUNKED + b"1 \r\nx\r\n0\r\nTrailer: y\r\n\r\n", "x"),
        (CHUNKED + b"ffffffffffffffff\r\n" + BLOCK, "x" * httpclient.MAX_RESPONSE_BODY_LENGTH),
        (OK + b"Transfer-Encoding: CHUNKED\r\nContent-Length: 1\r\n\r\n2\r\nab\r\n0\r\n\r\n", "ab"),
        (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nabc", "ab"),
        (OK + b"Content-Length: 2\r\n\r\nabc", "ab"),
        (OK + b"content-length:\r\n 2\r\n\r\nabc", "ab"),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n", "2\r\n"),
        (b"HTTP/1.1 200\n\nabc", "abc"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", ""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"\r\nabc", "abc"),
    ],
)
def test_body(answer: bytes, body: str) -> None:
    with serving(lambda: [answer]) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.SUCCESS, body)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"", "EOF"),
        (b"HTTP/1.1 200 O", "unexpected EOF"),
        (OK + b"X: y\r\n", "unexpected EOF"),
        (b"SSH-2.0-OpenSSH\r\n", 'malformed HTTP response "SSH-2.0-OpenSSH"'),
        (b"\x15\x03\xff\x00 \x1b[2J\n", "malformed HTTP status code"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", 'malformed HTTP status code "2000"'),
        (b"HTTP/1.1 \xd9\xa1\xd9\xa2\xd9\xa3 OK\r\n\r\n", "malformed HTTP status code"),
        (b"HTTP/11 200 OK\r\n\r\n", 'malformed HTTP version "HTTP/11"'),
        (OK + b"X\r\n\r\n", 'malformed MIME header line "X"'),
        (OK + b"X: " + BLOCK, "server response headers exceeded 65536 bytes"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3000, "server response headers exceeded 65536 bytes"),
        # Even a short line takes time.
        (OK + b":\n" * 2000 + b"\n", "server response headers exceeded 65536 bytes"),
        (OK + b"Transfer-Encoding:\n" + b" x\n" * 2000 + b"\n", "server response headers exceeded 65536 bytes"),
    ],
)
def test_head_that_makes_no_sense(answer: bytes, fault: str) -> None:
    with serving(lambda: [answer]) as url:
        result, output = probe_http(CTX, url, [], TIMEOUT)
    assert result is Result.FAILURE
    assert fault in output
    assert output.isprintable()


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (b"Transfer-Encoding: gzip", 'unsupported transfer encoding: "gzip"'),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "too many transfer encodings"),
        (b"Content-Length: -1", 'bad Content-Length "-1"'),
        (b"Content-Length: " + b"9" * 5000, "bad Content-Length"),
        (b"Content-Length: 1\r\nContent-Length: 2", "multiple Content-Length headers"),
    ],
)
def test_length_that_makes_no_sense(header: bytes, fault: str) -> None:
    with serving(lambda: [OK + header + b"\r\n\r\nabc"]) as url:
        result, output = probe_http(CTX, url, [], TIMEOUT)
    assert result is Result.FAILURE
    assert fault in output


def test_no_more_chunks_are_read_than_may_be() -> None:
    with serving(lambda: [CHUNKED, b"1\r\nx\r\n" * 10_000]) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.SUCCESS, "x" * httpclient.MAX_CHUNKS)


def drip(text: bytes) -> Callable[[], Iterator[bytes]]:
    """Return a response: the text, then one byte every few milliseconds until the client closes."""

    def answer() -> Iterator[bytes]:
        yield text
        while not golang.background().wait(0.01):
            yield b"x"

    return answer


SLOW = {
    "status line": b"",
    "header": OK + b"X: ",
    "1xx response": b"HTTP/1.1 100 Continue\r\nX: ",
    "chunk line": CHUNKED,
    "chunk": CHUNKED + b"fffff\r\n",
    "trailer": CHUNKED + b"0\r\n",
    "body": OK + b"\r\n",
}


# On a busy machine the timeout may occur during the connection attempt, with a different text.
OUT_OF_TIME = "context deadline exceeded|dial tcp .*: i/o timeout"


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("what", SLOW)
def test_probe_of_a_slow_server_ends_in_time(what: str, tls: bool) -> None:
    context = server_context() if tls else None
    with serving(drip(SLOW[what]), context) as url:
        try:
            result, output = probe_http(CTX, url, [], 0.5)
            assert result is Result.FAILURE
        except BrokenAnswerError as err:
            output = str(err)
    assert re.search(OUT_OF_TIME, output)


@pytest.mark.parametrize("what", SLOW)
def test_hook_of_a_slow_server_ends_with_its_context(what: str) -> None:
    ctx, cancel = golang.with_cancel(CTX)
    begun = threading.Event()

    def answer() -> Iterator[bytes]:
        begun.set()
        yield from drip(SLOW[what])()

    def end() -> None:
        begun.wait(TIMEOUT)
        cancel()

    with serving(answer) as url:
        ending = golang.go(end, name="cancel")
        try:
            HTTPClient().do(ctx, url, [])
        except httpclient.HTTPRequestError:
            pass
        ending.join(TIMEOUT)
    # The server's thread has ended, so the connection has ended too.


@pytest.mark.parametrize("tls", [False, True])
def test_hook_of_a_slow_server_ends_at_its_deadline(tls: bool) -> None:
    ctx, cancel = golang.with_timeout(CTX, 0.3)
    with (
        serving(drip(OK + b"X: "), server_context() if tls else None) as url,
        pytest.raises(httpclient.HTTPRequestError, match=OUT_OF_TIME),
    ):
        HTTPClient().do(ctx, url, [])
    cancel()


def test_redirects_share_the_time_of_one_probe() -> None:
    def answer() -> Iterator[bytes]:
        golang.background().wait(0.2)
        yield b"HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n"

    with serving(answer) as url:
        result, output = probe_http(CTX, url, [], 0.5)
    assert result is Result.FAILURE
    # The timeout may also occur while the second connection is being made, with a different text before this one.
    assert output.endswith("(Client.Timeout exceeded while awaiting headers)")


def test_cancelled_probe_says_nothing() -> None:
    ctx, cancel = golang.with_cancel(CTX)

    def answer() -> Iterator[bytes]:
        cancel()
        yield from drip(b"")()

    with serving(answer) as url, pytest.raises(golang.Canceled):
        probe_http(ctx, url, [], TIMEOUT)


@pytest.mark.parametrize(
    ("location", "seen"),
    [("/ü".encode(), b"GET /%C3%BC HTTP/1.1"), (b"/\xff b", b"GET /%FF%20b HTTP/1.1")],
)
def test_redirect_to_a_path_of_any_bytes(location: bytes, seen: bytes) -> None:
    answers = iter([b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\n\r\n", OK + b"\r\n"])
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    requests.append(connection.recv(4096).partition(b"\r\n")[0])
                    connection.sendall(answer)

        thread = golang.go(serve, name="server")
        result, output = probe_http(CTX, f"http://127.0.0.1:{listener.getsockname()[1]}", [], TIMEOUT)
        thread.join(TIMEOUT)
    assert result is Result.SUCCESS, output
    assert requests[1] == seen


@pytest.mark.parametrize("location", ["http://[" + "x" * 60_000, "/" + "x" * 60_000, "ftp://127.0.0.1/" + "x" * 60_000])
def test_long_location_makes_no_long_event(location: str) -> None:
    with serving(lambda: [b"HTTP/1.1 302 Found\r\nLocation: " + location.encode() + b"\r\n\r\n"]) as url:
        result, output = probe_http(CTX, url, [], TIMEOUT)
    assert result is Result.FAILURE
    assert len(output) < 3000


def test_redirect_to_a_host_of_very_many_marks_is_not_looked_into() -> None:
    location = "http://" + "\u0301" * 600 + "\u0316" * 600
    with serving(lambda: [b"HTTP/1.1 302 Found\r\nLocation: " + location.encode() + b"\r\n\r\n"]) as url:
        result, output = probe_http(CTX, url, [], TIMEOUT)
    assert result is Result.FAILURE
    assert "failed to parse Location header" in output


def test_time_out_of_68_years() -> None:
    with serving(lambda: [OK + b"\r\nabc"]) as url:
        assert probe_http(CTX, url, [], 2.0**31 - 1) == (Result.SUCCESS, "abc")


def test_an_old_server_is_as_well_as_a_new_one() -> None:
    context = server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA")
    with serving(lambda: [OK + b"\r\nabc"], context) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.SUCCESS, "abc")


def test_no_server_chooses_the_numbers_that_are_computed_with() -> None:
    """The client does not offer DHE key exchanges over TLS 1.2, whose numbers may have 10,000 bits.

    Computing with them takes a second, which no deadline can interrupt.
    """
    ciphers = SSL.Connection(tlsclient._unverified(), None).get_cipher_list()
    assert "ECDHE-RSA-AES128-GCM-SHA256" in ciphers
    assert not [each for each in ciphers if each.startswith("DHE-") and "PSK" not in each]


def test_no_server_has_it_computed_again_and_again() -> None:
    assert tlsclient._unverified.__wrapped__().set_options(0) & SSL.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("which", COSTLY_CERTIFICATES)
def test_no_server_has_its_certificates_computed_with(which: str, tmp_path: Path) -> None:
    """The handshake with a server that sends a costly certificate fails quickly.

    Without the check, one handshake took half a minute of processor time, which no deadline can interrupt.
    """
    chain = tmp_path / "chain.pem"
    chain.write_bytes(SELF_SIGNED.read_bytes() + pem(COSTLY_CERTIFICATES[which]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(chain)
    with serving(lambda: [OK + b"\r\nabc"], context) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.FAILURE, f'Get "{url}": tls: length mismatch')


class FiniteField:
    """Fake a socket to a server that requests a key share of an 8192-bit Diffie-Hellman group (TLS 1.3)."""

    def __init__(self, before: bytes, size: int) -> None:
        self._before, self._size = before, size
        self.sent: list[bytes] = []
        self._answer = b""

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing, because this socket never waits."""

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)
        session_id = data[44:76]
        extensions = b"\0\x2b\0\2\3\4" + b"\0\x33\0\2\1\4"
        random = hashlib.sha256(b"HelloRetryRequest").digest()
        hello = b"\3\3" + random + b"\x20" + session_id + b"\x13\1\0" + len(extensions).to_bytes(2) + extensions
        message = b"\2" + len(hello).to_bytes(3) + hello
        pieces = [message[at : at + self._size] for at in range(0, len(message), self._size)]
        self._answer = self._before + b"".join(b"\x16\3\3" + len(piece).to_bytes(2) + piece for piece in pieces)

    def recv(self, size: int) -> bytes:
        size = min(size, 3)  # A slow network delivers data in small pieces.
        data, self._answer = self._answer[:size], self._answer[size:]
        return data


@pytest.mark.parametrize("size", [1, 4, 50, 1000])
@pytest.mark.parametrize(
    "before", [b"", b"\x15\3\3\0\2\1\x70", b"\x16\3\3\0\4\0\0\0\0" * 3], ids=["hello", "warning", "requests"]
)
def test_no_server_has_numbers_of_8192_bits_computed_with(before: bytes, size: int) -> None:
    """The client refuses a server that selects a Diffie-Hellman group of 8192 bits.

    Each such handshake took 0.17 s of processor time, and a redirect to the same server caused ten of them.
    """
    connection = tlsclient.TLSConnection(CTX, sock := FiniteField(before, size), "server")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unsupported group"):
        connection.send(b"GET / HTTP/1.1\r\n\r\n")
    assert len(sock.sent) == 1, "a hello with the new key"


@pytest.mark.parametrize("curve", ["prime256v1", "secp521r1", "X25519"])
def test_server_may_choose_the_curve(curve: str) -> None:
    context = server_context()
    context.set_ecdh_curve(curve)
    with serving(lambda: [OK + b"\r\nabc"], context) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.SUCCESS, "abc")


def test_failure_of_tls_is_told_in_its_own_words() -> None:
    context = server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-CCM8")
    with serving(list, context) as url:
        found = probe_http(CTX, url, [], TIMEOUT)
    assert found == (Result.FAILURE, f'Get "{url}": tls: tls alert handshake failure')


@pytest.mark.parametrize(("requests", "is_read"), [(16, True), (1000, False)])
def test_server_that_asks_for_a_hello_many_times_is_not_read_on(requests: int, is_read: bool) -> None:
    """The client accepts 16 hello requests in a row, as Go does, and refuses a thousand.

    Each hello request is a record, which takes time even if it is short.
    """

    def talk(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(b"\x16\3\3\0\4\0\0\0\0" * requests)
            with server_context().wrap_socket(connection, True) as sock:
                sock.recv(65536)
                sock.sendall(OK + b"\r\nabc")

    with listening(talk) as port:
        url = f"https://{HOST}:{port}"
        found = probe_http(CTX, url, [], TIMEOUT)
    too_much = (Result.FAILURE, f'Get "{url}": tls: received more than 1048576 bytes')
    assert found == ((Result.SUCCESS, "abc") if is_read else too_much)


class Flood:
    """Fake a socket to a server that sends many session tickets at once."""

    def __init__(self, read: Callable[[], object], tickets: int = 1000) -> None:
        context = server_context()
        context.num_tickets = tickets
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._read = read
        self.sent = 0

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing, because this socket never waits."""

    def sendall(self, data: bytes) -> None:
        self._received.write(data)
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()

    def recv(self, size: int) -> bytes:
        data = self._to_send.read(size)
        self.sent += len(data)
        self._read()
        return data


class Crumbs(Flood):
    """Fake a socket to a server that sends its whole response at once, with each byte in its own record."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(lambda: None, tickets=0)
        self._answer = answer

    def sendall(self, data: bytes) -> None:
        super().sendall(data)
        with suppress(ssl.SSLWantReadError):
            self._tls.read(1000)
            for letter in self._answer:
                self._tls.write(bytes([letter]))


@pytest.mark.parametrize(("length", "is_read"), [(1000, True), (5000, False)])
def test_record_of_a_byte_costs_more_than_the_byte(length: int, is_read: bool) -> None:
    connection = tlsclient.TLSConnection(CTX, Crumbs(OK + b"\r\n" + b"x" * length), "server")  # type: ignore[arg-type]
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    read = b""
    with nullcontext() if is_read else pytest.raises(ValueError, match="received more than 1048576 bytes"):
        while not read.endswith(b"x" * length):
            read += connection.read(4096) or b""
    assert read.endswith(b"x" * 1000)


def test_probe_of_a_server_that_sends_no_data_ends_with_its_context() -> None:
    """A probe ends with its context while the server sends records without data.

    OpenSSL alone would read as long as data is available, and no deadline would hold.
    """
    ctx, cancel = golang.with_cancel(CTX)
    begun = False
    connection = tlsclient.TLSConnection(ctx, flood := Flood(lambda: cancel() if begun else None), "server")  # type: ignore[arg-type]
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    begun, before = True, flood.sent

    with pytest.raises(ConnectionAbortedError):
        connection.read(1)

    assert flood.sent - before < 20_000, "no more than a record"


def test_server_that_sends_tickets_without_end_is_not_read_on() -> None:
    flood = Flood(lambda: None, tickets=5000)
    connection = tlsclient.TLSConnection(CTX, flood, "server")  # type: ignore[arg-type]
    connection.send(b"GET / HTTP/1.1\r\n\r\n")

    with pytest.raises(ValueError, match="received more than 1048576 bytes"):
        connection.read(1)

    assert flood.sent < tlsclient.MAX_TLS_BYTES // 2, "each costs more than its bytes"


@pytest.mark.parametrize("size", [4, 16384])
def test_server_that_says_hello_without_end_is_not_read_on(size: int) -> None:
    record = b"\x16\3\3" + size.to_bytes(2) + bytes(size)
    with serving(lambda: itertools.repeat(record * 1000)) as url:
        url = url.replace("http:", "https:")
        found = probe_http(CTX, url, [], TIMEOUT)
    assert found == (Result.FAILURE, f'Get "{url}": tls: received more than 1048576 bytes')


class Broken:
    """Fake a socket to a server whose hello is truncated."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing, because this socket never waits."""

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)

    def recv(self, size: int) -> bytes:
        return b"\x16\x03\x03\x00\x04\x02\x00\x00\x00"


def test_a_server_is_told_why_there_is_no_handshake() -> None:
    connection = tlsclient.TLSConnection(CTX, sock := Broken(), "server")  # type: ignore[arg-type]
    with pytest.raises(TLSError):
        connection.send(b"GET / HTTP/1.1\r\n\r\n")
    alert = 0x15
    assert sock.sent[-1][0] == alert


def test_answer_that_is_no_redirect_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[str] = []
    monkeypatch.setattr(net, "join", lambda base, location: joined.append(location))
    with serving(lambda: [OK + b"\r\nabc"]) as url:
        assert probe_http(CTX, url, [], TIMEOUT) == (Result.SUCCESS, "abc")
    assert not joined


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    return context
