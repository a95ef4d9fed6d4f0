"""Test single probes against real sockets on loopback."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.component_base import version
from pkg.golang.testing import frames_kept_after
from pkg.probe import Result, httpclient, probe_exec, probe_grpc, probe_http, probe_tcp, resolve_container_port
from pkg.probe import http as httpprobe
from pkg.util import exec as utilexec

TIMEOUT = 30.0
CTX = golang.background()
# The file holds an unrelated key with a self-signed certificate.
SELF_SIGNED = Path(__file__).parents[2] / "test/data/tls/self-signed.pem"
Handler = http.server.BaseHTTPRequestHandler


@contextmanager
def serving(answer: Callable[[Handler], None], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a web server that responds to GETs with `answer`; yield its URL."""

    class Answering(Handler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler: Handler, status: int, body: str = "", location: str = "") -> None:
    handler.send_response(status)
    if location:
        handler.send_header("Location", location)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body.encode())


def echo_headers(handler: Handler) -> None:
    reply(handler, 200, "".join(f"{name}: {value}\n" for name, value in handler.headers.items()))


def headers(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
    action = v1.HTTPGetAction(http_headers=[v1.HTTPHeader(name=name, value=value) for name, value in pairs])
    return httpprobe.headers_of(action, "probe")


@pytest.mark.parametrize(
    ("status", "result", "output"),
    [
        (200, Result.SUCCESS, "body"),
        (204, Result.SUCCESS, ""),
        (299, Result.SUCCESS, "body"),
        (300, Result.WARNING, "Probe terminated redirects, Response body: body"),
        (304, Result.WARNING, "Probe terminated redirects, Response body: "),
        (308, Result.WARNING, "Probe terminated redirects, Response body: body"),
        (400, Result.FAILURE, "HTTP probe failed with statuscode: 400"),
        (500, Result.FAILURE, "HTTP probe failed with statuscode: 500"),
    ],
)
def test_http_status(status: int, result: Result, output: str) -> None:
    with serving(lambda handler: reply(handler, status, "body")) as url:
        assert probe_http(CTX, url, headers(), TIMEOUT) == (result, output)


@pytest.mark.parametrize(
    ("sent", "there", "missing"),
    [
        ([], "Accept: */*", "Accept-Encoding"),
        ([], f"User-Agent: kube-probe/{version.get().major}.{version.get().minor}", "Cookie"),
        ([], "Connection: close", "keep-alive"),
        ([("Accept-Encoding", "gzip")], "Accept-Encoding: gzip", "identity"),
        ([("Accept-Encoding", "")], "Accept-Encoding: \n", "identity"),
        ([("X-Muffins-Or-Cupcakes", "muffins")], "X-Muffins-Or-Cupcakes: muffins", "cupcakes:"),
        ([("user-agent", "foo/1.0")], "user-agent: foo/1.0", "kube-probe"),
        ([("User-Agent", "")], "Accept: */*", "User-Agent"),
        ([("Accept", "text/html")], "Accept: text/html", "*/*"),
        ([("Accept", "")], "User-Agent: ", "Accept:"),
        ([("Host", "muffins.cupcakes.org")], "Host: muffins.cupcakes.org\n", "127.0.0.1"),
        ([("Host", "")], "Host: 127.0.0.1:", "Host: \n"),
        ([("A", "1"), ("A", "2")], "A: 1\nA: 2\n", "A: 1, 2"),
    ],
)
def test_http_headers(sent: list[tuple[str, str]], there: str, missing: str) -> None:
    with serving(echo_headers) as url:
        result, output = probe_http(CTX, url, headers(*sent), TIMEOUT)
    assert result is Result.SUCCESS
    assert there in output
    assert missing not in output


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("X", "a\r\nb: c", 'value for "X"'),
        ("X", "a\n", 'value for "X"'),
        ("Host", "a\n", 'value for "Host"'),
        ("X", "\x00", 'value for "X"'),
        ("X\n", "a", 'name "X\n"'),
        ("a b", "a", 'name "a b"'),
    ],
)
def test_header_that_would_end_early_is_a_failure_that_names_it(name: str, value: str, what: str) -> None:
    with unused_port() as port:
        url = f"http://127.0.0.1:{port}/"
        result, output = probe_http(CTX, url, headers((name, value)), TIMEOUT)
    assert (result, output) == (Result.FAILURE, f'Get "{url}": net/http: invalid header field {what}')


def test_header_with_a_tab_and_with_umlauts() -> None:
    with serving(echo_headers) as url:
        result, output = probe_http(CTX, url, headers(("X", "a\tb"), ("Y", "\u00e4\u20ac")), TIMEOUT)
    assert result is Result.SUCCESS, output
    assert "X: a\tb\n" in output


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("then", "result"), [(200, Result.SUCCESS), (500, Result.FAILURE)])
def test_http_redirect_on_the_same_host(status: int, then: int, result: Result) -> None:
    def answer(handler: Handler) -> None:
        if handler.path == "/":
            reply(handler, status, location="/new")
        else:
            reply(handler, then if handler.path == "/new" else 404)

    with serving(answer) as url:
        assert probe_http(CTX, url, headers(), TIMEOUT)[0] is result


def redirecting(handler: Handler) -> None:
    parts = urlsplit(handler.path)
    match parts.path:
        case "/redirect":
            reply(handler, 302, location=parse_qs(parts.query)["loc"][0])
        case "/loop":
            reply(handler, 302, location="/loop")
        case "/success":
            reply(handler, 200, handler.headers["Host"])
        case _:
            reply(handler, 500)


@pytest.mark.parametrize(
    ("location", "result", "output"),
    [
        ("/success", Result.SUCCESS, ""),
        ("/fail", Result.FAILURE, "statuscode: 500"),
        ("OTHER/success", Result.SUCCESS, ""),
        ("OTHER/fail", Result.FAILURE, "statuscode: 500"),
        ("http://0.0.0.0/fail", Result.WARNING, "Probe terminated redirects"),
        ("/loop", Result.FAILURE, "stopped after 10 redirects"),
        ("ftp://127.0.0.1/x", Result.FAILURE, 'unsupported protocol scheme "ftp"'),
        ("http://[::1/x", Result.FAILURE, "failed to parse Location header"),
        ("http://127.0.0.1:x/", Result.FAILURE, "Port could not be cast"),
    ],
)
def test_http_redirect_elsewhere(location: str, result: Result, output: str) -> None:
    with serving(redirecting) as url, serving(redirecting) as other:
        target = location.replace("OTHER", other)
        found = probe_http(CTX, f"{url}/redirect?loc={target}", headers(), TIMEOUT)
    assert found[0] is result
    assert output in found[1]


def test_host_header_is_kept_on_a_relative_redirect_alone() -> None:
    sent = headers(("Host", "www.success.com"))
    with serving(redirecting) as url:
        assert probe_http(CTX, f"{url}/redirect?loc=/success", sent, TIMEOUT)[1] == "www.success.com"
        there = urlsplit(url).netloc
        assert probe_http(CTX, f"{url}/redirect?loc={url}/success", sent, TIMEOUT)[1] == there


@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_http_body_is_cut(surplus: int) -> None:
    length = httpclient.MAX_RESPONSE_BODY_LENGTH
    with serving(lambda handler: reply(handler, 200, "a" * (length + surplus))) as url:
        _, output = probe_http(CTX, url, headers(), TIMEOUT)
    assert len(output) == min(length, length + surplus)


@pytest.mark.parametrize(
    ("path", "seen"), [("/a b", "/a%20b"), ("/a%20b?c=ä", "/a%20b?c=%C3%A4"), ("?x", "/?x"), ("", "/"), ("/#f", "/")]
)
def test_http_path_is_escaped(path: str, seen: str) -> None:
    with serving(lambda handler: reply(handler, 200, handler.path)) as url:
        assert probe_http(CTX, url + path, headers(), TIMEOUT) == (Result.SUCCESS, seen)


def test_https_certificate_is_not_verified() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    with serving(lambda handler: reply(handler, 200, "safe"), context) as url:
        assert probe_http(CTX, url, headers(), TIMEOUT) == (Result.SUCCESS, "safe")
        plain = url.replace("https", "http")
        assert probe_http(CTX, plain, headers(), TIMEOUT)[0] is Result.FAILURE


def test_http_without_a_server() -> None:
    with unused_port() as port:
        url = f"http://127.0.0.1:{port}"
        result, output = probe_http(CTX, url, headers(), TIMEOUT)
    assert result is Result.FAILURE
    assert output == f'Get "{url}": dial tcp {urlsplit(url).netloc}: connect: connection refused'


def test_http_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda handler: reply(handler, 200, "through a proxy")) as proxy, unused_port() as port:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy)
        assert probe_http(CTX, f"http://127.0.0.1:{port}", headers(), TIMEOUT)[0] is Result.FAILURE


@pytest.mark.parametrize(
    ("action", "url"),
    [
        ({"port": 93}, "http://10.0.0.1:93"),
        ({"port": 93, "host": "localhost", "path": "/path"}, "http://localhost:93/path"),
        ({"port": 93, "path": "?foo"}, "http://10.0.0.1:93?foo"),
        ({"port": 93, "path": "path"}, "http://10.0.0.1:93/path"),
        ({"port": 93, "scheme": "HTTPS", "path": "/path?bar"}, "https://10.0.0.1:93/path?bar"),
        ({"port": "web", "host": "fd00::1", "path": "/"}, "http://[fd00::1]:80/"),
    ],
)
def test_request_url(action: dict[str, str | int], url: str) -> None:
    container = v1.Container(ports=[v1.ContainerPort(name="web", container_port=80)])
    made = v1.HTTPGetAction(
        port=action["port"],
        host=str(action.get("host", "")),
        path=str(action.get("path", "")),
        scheme=str(action.get("scheme", "")),
    )
    assert httpprobe.new_request_url(made, container, "10.0.0.1") == url


def test_request_has_no_path_without_end() -> None:
    made = v1.HTTPGetAction(port=93, path="/" * httpprobe.MAX_REQUEST_LENGTH)
    assert httpprobe.new_request_url(made, v1.Container(), "10.0.0.1").endswith(made.path)
    made.path += "/"
    with pytest.raises(ValueError, match=r"^path has 65537 characters, more than 65536"):
        httpprobe.new_request_url(made, v1.Container(), "10.0.0.1")


def test_request_has_no_headers_without_end() -> None:
    assert len(headers(*[("a", "")] * httpprobe.MAX_REQUEST_HEADERS)) > httpprobe.MAX_REQUEST_HEADERS
    with pytest.raises(ValueError, match=r"^there are 257 headers, more than 256"):
        headers(*[("a", "")] * (httpprobe.MAX_REQUEST_HEADERS + 1))
    with pytest.raises(ValueError, match=r"^headers have 65537 characters, more than 65536"):
        headers(("a", "v" * httpprobe.MAX_REQUEST_LENGTH))


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (-1, "invalid port number: -1"),
        (0, "invalid port number: 0"),
        (65536, "invalid port number: 65536"),
        ("", 'strconv.Atoi: parsing "": invalid syntax'),
        ("-1", "invalid port number: -1"),
        ("not-found", 'strconv.Atoi: parsing "not-found": invalid syntax'),
        ("found", 93),
        (76, 76),
        ("118", 118),
    ],
)
def test_resolve_container_port(port: int | str, expected: int | str) -> None:
    container = v1.Container(ports=[v1.ContainerPort(name="found", container_port=93)])
    if isinstance(expected, int):
        assert resolve_container_port(port, container) == expected
    else:
        with pytest.raises(ValueError, match=f"^{expected}$"):
            resolve_container_port(port, container)


def test_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert probe_tcp(CTX, "127.0.0.1", port, TIMEOUT) == (Result.SUCCESS, "")
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1) == b"", "the server sees an orderly end, no reset"


def test_tcp_without_a_server() -> None:
    with unused_port() as port:
        found = probe_tcp(CTX, "127.0.0.1", port, TIMEOUT)
    refused = (Result.FAILURE, f"dial tcp 127.0.0.1:{port}: connect: connection refused")
    assert found == refused


def test_tcp_time_out() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address):
            # The queue holds one connection; the next one waits for room until its timeout.
            result, output = probe_tcp(CTX, address[0], address[1], 0.2)
    assert (result, output) == (Result.FAILURE, f"dial tcp 127.0.0.1:{address[1]}: i/o timeout")


@pytest.mark.parametrize(
    "probe",
    [
        lambda ctx, port: probe_http(ctx, f"http://127.0.0.1:{port}", [], TIMEOUT),
        lambda ctx, port: probe_tcp(ctx, "127.0.0.1", port, TIMEOUT),
        lambda ctx, port: probe_grpc(ctx, "127.0.0.1", "", port, TIMEOUT),
    ],
)
def test_nothing_stays_of_a_probe_that_is_cancelled(probe: Callable[[golang.Context, int], object]) -> None:
    ctx, cancel = golang.with_cancel(CTX)
    cancel()
    with unused_port() as port:
        with pytest.raises(golang.Canceled):
            probe(ctx, port)
        assert not frames_kept_after(lambda: probe(ctx, port))


def fail(err: Exception) -> Callable[[], bytes]:
    def run() -> bytes:
        raise err

    return run


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: b"OK", (Result.SUCCESS, "OK")),
        (lambda: b"logs-123" * 2000, (Result.SUCCESS, "logs-123" * 1280)),
        (fail(utilexec.CodeExitError(ValueError("exited"), 1, b"Fail")), (Result.FAILURE, "Fail")),
        (
            fail(utilexec.CodeExitError(ValueError("exited"), 1, b"logs-123" * 2000)),
            (Result.FAILURE, "logs-123" * 1280),
        ),
        (fail(utilexec.CommandTimedOutError(["c"], 1)), (Result.FAILURE, 'command timed out: "c" timed out after 1s')),
        (lambda: b"\xff", (Result.SUCCESS, "\ufffd")),
    ],
)
def test_exec(run: Callable[[], bytes], expected: tuple[Result, str]) -> None:
    assert probe_exec(run) == expected


def test_exec_that_could_not_be_carried_out() -> None:
    with pytest.raises(RuntimeError, match="unknown"):
        probe_exec(fail(RuntimeError("unknown")))


@contextmanager
def unused_port() -> Iterator[int]:
    """Yield a port on which no process listens or can start to listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
