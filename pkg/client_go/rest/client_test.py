"""Test requests over real connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.client_go import rest
from pkg.client_go.rest import testing
from pkg.client_go.tools.clientcmd import api
from pkg.client_go.util.flowcontrol.testing import FakeRateLimiter

CA = testing.new_pair("ca")
SERVER = testing.new_pair("server", CA)
_WAIT = 30.0


def client(server: testing.Server, ca: testing.Pair = CA, **fields: Any) -> rest.RESTClient:
    tls = fields.pop("tls_client_config", None) or rest.TLSClientConfig(ca_data=ca.cert_pem)
    return rest.RESTClient(rest.Config(host=server.url, tls_client_config=tls, qps=-1, **fields))


def test_request_as_sent() -> None:
    with testing.serve(lambda request: request.answer(body=b'{"a":1}')) as server:
        one = client(server, bearer_token="secret", user_agent="me", timeout=10)
        params = {"resourceVersion": "0", "fieldSelector": "metadata.name=a", "watch": True}
        answer = one.request(
            golang.background(), "PATCH", "/api/v1/nodes/a", params=params, body=b"x", content_type="t"
        )
        one.close_idle_connections()
    assert answer == b'{"a":1}'
    request = server.requests[0]
    assert request.uri == "/api/v1/nodes/a?fieldSelector=metadata.name%3Da&resourceVersion=0&timeout=10s&watch=true"
    assert request.body == b"x"
    sent = {name: request.headers[name] for name in ("Authorization", "User-Agent", "Accept", "Content-Type")}
    assert sent == {
        "Authorization": "Bearer secret",
        "User-Agent": "me",
        "Accept": "application/json",
        "Content-Type": "t",
    }


@pytest.mark.parametrize(
    ("code", "content_type", "body", "message", "question"),
    [
        (404, "text/plain", b"404 page not found", "the server could not find the requested resource (get pods a)", 0),
        (
            500,
            "text/plain",
            b"broken",
            'an error on the server ("broken") has prevented the request from succeeding',
            1,
        ),
        (403, "text/plain", b"Forbidden: u cannot get", "Forbidden: u cannot get (get pods a)", 2),
        (
            403,
            "application/json",
            b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"pods is forbidden: User x"}',
            "pods is forbidden: User x",
            2,
        ),
        (418, "application/x", b"", "the server responded with the status code 418 but did not return more", 3),
    ],
)
def test_refusals(code: int, content_type: str, body: bytes, message: str, question: int) -> None:
    questions = [apierrors.is_not_found, apierrors.is_internal_error, apierrors.is_forbidden]
    with testing.serve(lambda request: request.answer(code, body, Content_Type=content_type)) as server:
        one = client(server)
        with pytest.raises(apierrors.StatusError) as caught:
            one.request(golang.background(), "GET", "/api/v1/pods/a", resource="pods", name="a")
        one.close_idle_connections()
    assert message in str(caught.value)
    assert [ask(caught.value) for ask in questions] == [i == question for i in range(3)]


def test_connection_is_used_again() -> None:
    peers: list[Any] = []

    def answer(request: testing.Request) -> None:
        peers.append(request.handler.client_address)
        request.answer()

    with testing.serve(answer) as server:
        one = client(server)
        for _ in range(3):
            one.request(golang.background(), "GET", "/")
        one.close_idle_connections()
    assert len(set(peers)) == 1


def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    peers: list[Any] = []
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        peers.append(request.handler.client_address)
        request.begin_stream()
        if "watch" in request.uri:
            release.wait(_WAIT)
        request.send_chunk(b"")

    with testing.serve(answer) as server:
        one = client(server)
        stream = one.stream(golang.background(), "GET", "/watch", watch=True)
        one.request(golang.background(), "GET", "/")
        release.set()
        stream.close()
        one.close_idle_connections()
    assert len(set(peers)) == 2


def test_closed_idle_connection_is_replaced() -> None:
    def answer(request: testing.Request) -> None:
        request.handler.close_connection = True
        request.answer()

    with testing.serve(answer) as server:
        one = client(server)
        for _ in range(3):
            assert one.request(golang.background(), "GET", "/") == b"{}"
        one.close_idle_connections()


@pytest.mark.parametrize(
    ("pair", "ca", "message"),
    [
        (SERVER, testing.new_pair("other"), "x509: certificate signed by unknown authority"),
        (testing.new_pair("old", CA, days=-1), CA, "x509: certificate has expired or is not yet valid"),
        (testing.new_pair("elsewhere", CA, names=("elsewhere",)), CA, "127.0.0.1"),
    ],
)
def test_bad_server_certificates(tmp_path: Path, pair: testing.Pair, ca: testing.Pair, message: str) -> None:
    serving = testing.serve(lambda request: request.answer(), pair, path=tmp_path)
    with serving as server, pytest.raises(rest.TransportError) as caught:
        client(server, ca).request(golang.background(), "GET", "/api")
    assert str(caught.value).startswith(f'Get "{server.url}/api": tls: failed to verify certificate: ')
    assert message in str(caught.value)


def test_server_name_and_insecure(tmp_path: Path) -> None:
    pair = testing.new_pair("elsewhere", CA, names=("elsewhere",))
    with testing.serve(lambda request: request.answer(), pair, path=tmp_path) as server:
        for tls in (
            rest.TLSClientConfig(ca_data=CA.cert_pem, server_name="elsewhere"),
            rest.TLSClientConfig(ca_data=CA.cert_pem, server_name="elsewhere."),
            rest.TLSClientConfig(insecure=True),
        ):
            one = client(server, tls_client_config=tls)
            assert one.request(golang.background(), "GET", "/") == b"{}"
            one.close_idle_connections()


def test_common_name_is_not_the_servers_name(tmp_path: Path) -> None:
    pair = testing.new_pair("elsewhere", CA, names=None)
    tls = rest.TLSClientConfig(ca_data=CA.cert_pem, server_name="elsewhere")
    serving = testing.serve(lambda request: request.answer(), pair, path=tmp_path)
    with serving as server, pytest.raises(rest.TransportError, match="not valid for 'elsewhere'"):
        client(server, tls_client_config=tls).request(golang.background(), "GET", "/api")


def test_refused() -> None:
    one = rest.RESTClient(rest.Config(host="http://127.0.0.1:1"))
    with pytest.raises(
        rest.TransportError, match=r'^Get "http://127.0.0.1:1/x": dial tcp: connect: connection refused$'
    ):
        one.request(golang.background(), "GET", "/x")


def blocked(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Run the call in a thread, and return a list to which its exception is added."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Exception as err:  # The test checks the exception.
            errors.append(err)

    return golang.go(run, name="blocked"), errors


def test_cancel_ends_blocked_request(tmp_path: Path) -> None:
    asked, release = threading.Event(), threading.Event()

    def answer(request: testing.Request) -> None:
        asked.set()
        release.wait(_WAIT)

    with testing.serve(answer, SERVER, path=tmp_path) as server:
        ctx, cancel = golang.with_cancel(golang.background())
        one = client(server)
        thread, errors = blocked(lambda: one.request(ctx, "GET", "/"))
        assert asked.wait(_WAIT)
        cancel()
        thread.join(_WAIT)
        assert not thread.is_alive() and not release.is_set()
        release.set()
    assert [type(err) for err in errors] == [golang.Canceled]


def test_cancel_ends_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ctx, cancel = golang.with_cancel(golang.background())
        one = rest.RESTClient(rest.Config(host=f"https://127.0.0.1:{listener.getsockname()[1]}"))
        thread, errors = blocked(lambda: one.request(ctx, "GET", "/"))
        silent, _ = listener.accept()
        with silent:
            assert silent.recv(1), "the client has begun"
            cancel()
            thread.join(_WAIT)
            assert not thread.is_alive()
    assert [type(err) for err in errors] == [golang.Canceled]


def test_slow_server_runs_into_timeout() -> None:
    release = threading.Event()
    with testing.serve(lambda _: release.wait(_WAIT)) as server:  # type: ignore[arg-type]
        with pytest.raises(rest.RequestTimeoutError) as caught:
            client(server, timeout=0.05).request(golang.background(), "GET", "/")
        release.set()
    assert "context deadline exceeded" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)


def test_retry_after() -> None:
    codes = iter([429, 503, 200])

    def answer(request: testing.Request) -> None:
        request.answer(next(codes), Retry_After="0")

    with testing.serve(answer) as server:
        one = client(server)
        assert one.request(golang.background(), "POST", "/", body=b"again") == b"{}"
        one.close_idle_connections()
    assert [request.body for request in server.requests] == [b"again"] * 3


def test_refusal_without_retry_after_is_final() -> None:
    with testing.serve(lambda request: request.answer(429)) as server:
        one = client(server)
        with pytest.raises(apierrors.StatusError) as caught:
            one.request(golang.background(), "GET", "/")
        one.close_idle_connections()
    assert apierrors.is_too_many_requests(caught.value)
    assert len(server.requests) == 1


def test_stream_ends_when_closed(tmp_path: Path) -> None:
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        request.begin_stream()
        request.send_chunk(b'{"a":')
        request.send_chunk(b'1}\n\n{"b":2}\n')
        release.wait(_WAIT)

    with testing.serve(answer, SERVER, path=tmp_path) as server:
        stream = client(server).stream(golang.background(), "GET", "/", watch=True)
        assert [stream.readline(), stream.readline()] == [b'{"a":1}', b'{"b":2}']
        thread, errors = blocked(stream.readline)
        stream.close()
        thread.join(_WAIT)
        assert not thread.is_alive() and not errors
        release.set()


def test_certificate_rotation_keeps_running_watch(tmp_path: Path) -> None:
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        if "watch" not in request.uri:
            request.answer()
            return
        request.begin_stream()
        request.send_chunk(b"first\n")
        release.wait(_WAIT)
        request.send_chunk(b"second\n")
        request.send_chunk(b"")

    pair = testing.new_pair("before", CA)
    file = tmp_path / "client.pem"
    file.write_bytes(pair.cert_pem + pair.key_pem)
    tls = rest.TLSClientConfig(ca_data=CA.cert_pem, cert_file=str(file), key_file=str(file))
    with testing.serve(answer, SERVER, CA, tmp_path) as server:
        one = client(server, tls_client_config=tls)
        stream = one.stream(golang.background(), "GET", "/watch", watch=True)
        assert stream.readline() == b"first"
        one.request(golang.background(), "GET", "/")
        pair = testing.new_pair("after it", CA)
        (tmp_path / "new").write_bytes(pair.cert_pem + pair.key_pem)
        (tmp_path / "new").replace(file)
        one.request(golang.background(), "GET", "/")
        release.set()
        assert [stream.readline(), stream.readline()] == [b"second", None]
        stream.close()
        one.close_idle_connections()
    assert [request.peer for request in server.requests] == ["before", "before", "after it"]


def test_close_all_ends_watches() -> None:
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        request.begin_stream()
        release.wait(_WAIT)

    tracker = rest.ConnectionTracker()
    with testing.serve(answer) as server:
        stream = client(server, connections=tracker).stream(golang.background(), "GET", "/", watch=True)
        thread, errors = blocked(stream.readline)
        tracker.close_all()
        thread.join(_WAIT)
        assert not thread.is_alive()
        release.set()
        stream.close()
    assert all(isinstance(err, OSError) for err in errors)


def test_server_that_refuses_keeps_its_watches() -> None:
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        if "watch" not in request.uri:
            request.answer(403)
            return
        request.begin_stream()
        release.wait(_WAIT)
        request.send_chunk(b"event\n")

    tracker = rest.ConnectionTracker()
    with testing.serve(answer) as server:
        one = client(server, connections=tracker)
        stream = one.stream(golang.background(), "GET", "/watch", watch=True)
        with pytest.raises(apierrors.StatusError):
            one.request(golang.background(), "GET", "/")
        tracker.close_all_if_failing()
        release.set()
        assert stream.readline() == b"event"
        stream.close()
        one.close_idle_connections()


def test_token_file_is_read_again_when_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    def answer(request: testing.Request) -> None:
        request.answer(200 if request.headers["Authorization"] == "Bearer new" else 401)

    with testing.serve(answer) as server:
        one = client(server, bearer_token_file=str(file))
        with pytest.raises(apierrors.StatusError) as caught:
            one.request(golang.background(), "GET", "/")
        assert apierrors.is_unauthorized(caught.value)
        file.write_text("new\n")
        assert one.request(golang.background(), "GET", "/") == b"{}"
        one.close_idle_connections()
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer old"] * 2 + ["Bearer new"]


@pytest.mark.parametrize("by_file", [True, False])
def test_token_that_cannot_be_sent_is_not_told(tmp_path: Path, by_file: bool) -> None:
    file = tmp_path / "token"
    file.write_text("secret\nsecret\n")
    fields: dict[str, Any] = {"bearer_token_file": str(file)} if by_file else {"bearer_token": "secret\nsecret"}
    with testing.serve(lambda request: request.answer()) as server, pytest.raises(OSError) as caught:
        client(server, **fields).request(golang.background(), "GET", "/")
    assert str(caught.value).endswith('net/http: invalid header field value for "Authorization"')


def test_password_in_the_url_of_the_server_is_not_told() -> None:
    one = rest.RESTClient(rest.Config(host="http://ann:secret@127.0.0.1:1"))
    with pytest.raises(OSError) as caught:
        one.request(golang.background(), "GET", "/")
    assert str(caught.value) == 'Get "http://127.0.0.1:1/": dial tcp: connect: connection refused'
    assert one.host == "127.0.0.1:1"


@pytest.mark.parametrize("scheme", ["https", "socks5"])
def test_proxy_of_another_kind_is_refused(scheme: str) -> None:
    with pytest.raises(ValueError, match="only http:// proxies") as refused:
        rest.RESTClient(rest.Config(host="http://127.0.0.1:1", proxy_url=f"{scheme}://ann:secret@proxy"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "credentials"),
    [
        ({}, "requests without credentials"),
        ({"bearer_token": "secret"}, "the bearer token"),
        ({"username": "ann", "password": "secret"}, "the password of 'ann'"),
    ],
)
def test_who_is_not_known_to_the_server_is_told_with_what(fields: dict[str, Any], credentials: str) -> None:
    with testing.serve(lambda request: request.answer(401)) as server:
        one = client(server, **fields)
        with pytest.raises(apierrors.StatusError) as caught:
            one.request(golang.background(), "GET", "/api")
        one.close_idle_connections()
    assert apierrors.is_unauthorized(caught.value)
    assert str(caught.value).endswith(f': Get "{server.url}/api": the server does not accept {credentials}')


@pytest.mark.parametrize(("days", "ended"), [(1, "is valid until"), (-1, "expired on")])
def test_whose_certificate_is_not_known_to_the_server_is_told(tmp_path: Path, days: int, ended: str) -> None:
    mine = testing.new_pair("node", CA, days=days)
    with testing.serve(lambda request: request.answer(401), SERVER, path=tmp_path) as server:
        tls = rest.TLSClientConfig(ca_data=CA.cert_pem, cert_data=mine.cert_pem, key_data=mine.key_pem)
        one = client(server, tls_client_config=tls)
        with pytest.raises(apierrors.StatusError) as caught:
            one.request(golang.background(), "GET", "/api")
        one.close_idle_connections()
    end = f"{mine.cert.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    assert str(caught.value).endswith(f"does not accept the client certificate of 'node', which {ended} {end}")


def test_exec_plugin_is_asked_again_when_refused(tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text(
        "#!/bin/sh\n"
        'echo run >> "$0.runs"\n'
        'n=$(wc -l < "$0.runs")\n'
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
        '\\"status\\":{\\"token\\":\\"t$n\\"}}"\n'
    )
    script.chmod(0o755)
    provider = api.ExecConfig(
        command=str(script), api_version="client.authentication.k8s.io/v1", interactive_mode="Never"
    )

    def answer(request: testing.Request) -> None:
        request.answer(200 if request.headers["Authorization"] == "Bearer t2" else 401)

    with testing.serve(answer) as server:
        one = client(server, exec_provider=provider)
        for _ in range(2):
            assert one.request(golang.background(), "GET", "/") == b"{}"
        one.close_idle_connections()
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer t1", "Bearer t2", "Bearer t2"]


def test_impersonation_and_warnings() -> None:
    told: list[tuple[int, str, str]] = []
    who = rest.ImpersonationConfig(user_name="u", groups=["g"], extra={"Scopes": ["a"]})
    warning = '299 - "first \\"one\\"", 299 - "second"'
    with testing.serve(lambda request: request.answer(Warning=warning)) as server:
        one = client(server, impersonate=who, warning_handler=lambda *args: told.append(args))
        one.request(golang.background(), "GET", "/")
        one.close_idle_connections()
    headers = server.requests[0].headers
    assert headers["Impersonate-User"] == "u" and headers["Impersonate-Group"] == "g"
    assert headers["Impersonate-Extra-scopes"] == "a"
    assert told == [(299, "-", 'first "one"'), (299, "-", "second")]


@pytest.mark.parametrize(
    ("seconds", "text"), [(10, "10s"), (433, "7m13s"), (363, "6m3s"), (3600, "1h0m0s"), (0.5, "0.5s")]
)
def test_go_duration(seconds: float, text: str) -> None:
    assert rest.go_duration(seconds) == text


@pytest.mark.parametrize("host", ["ftp://x", "https://", "http://h:port"])
def test_bad_hosts(host: str) -> None:
    with pytest.raises(ValueError, match="host must be a URL or a host:port pair"):
        rest.RESTClient(rest.Config(host=host))


def test_bad_files_are_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(OSError, match=missing):
        rest.RESTClient(rest.Config(host="https://h", tls_client_config=rest.TLSClientConfig(ca_file=missing)))
    with pytest.raises(ValueError, match="certificate-authority-data"):
        rest.RESTClient(rest.Config(host="https://h", tls_client_config=rest.TLSClientConfig(ca_data=b"junk")))


@pytest.mark.parametrize("ca", [{"ca_data": CA.cert_pem}, {"ca_file": "/ca.crt"}])
def test_authorities_and_insecure(ca: dict[str, Any]) -> None:
    tls = rest.TLSClientConfig(insecure=True, **ca)
    with pytest.raises(ValueError, match="root certificates file with the insecure flag is not allowed"):
        rest.RESTClient(rest.Config(host="https://h", tls_client_config=tls))


@pytest.mark.parametrize(
    "bundle",
    [
        "Zertifizierungsstelle f\u00fcr Pr\u00fcfungen\n".encode() + CA.cert_pem,
        b"\xff\xfe\n" + CA.cert_pem,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + CA.cert_pem,
        b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n" + CA.cert_pem,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n" + CA.cert_pem,
        CA.cert_pem + b"-----BEGIN CERTIFICATE-----\nAAAA",
        CA.key_pem + CA.cert_pem + CA.cert_pem,
    ],
)
def test_bundle_of_authorities_with_parts_of_no_use(tmp_path: Path, bundle: bytes) -> None:
    with testing.serve(lambda request: request.answer(), SERVER, path=tmp_path) as server:
        one = client(server, tls_client_config=rest.TLSClientConfig(ca_data=bundle))
        assert one.request(golang.background(), "GET", "/") == b"{}"
        one.close_idle_connections()


@pytest.mark.parametrize("bundle", [b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_bundle_without_an_authority(bundle: bytes) -> None:
    with pytest.raises(ValueError, match="unable to load root certificates from certificate-authority-data"):
        rest.RESTClient(rest.Config(host="https://h", tls_client_config=rest.TLSClientConfig(ca_data=bundle)))


def test_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.serve(lambda request: request.answer()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "192.0.2.0/24")
        one = rest.RESTClient(rest.Config(host="http://198.51.100.1"))
        assert one.request(golang.background(), "GET", "/a") == b"{}"
        one.close_idle_connections()
        assert rest.RESTClient(rest.Config(host="http://192.0.2.7"))._proxy is None
    assert [request.uri for request in proxy.requests] == ["http://198.51.100.1/a"]


def test_requests_are_throttled_and_watches_are_not() -> None:
    limiter = FakeRateLimiter()

    def answer(request: testing.Request) -> None:
        request.answer(body=b"")

    with testing.serve(answer) as server:
        one = rest.RESTClient(rest.Config(host=server.url, rate_limiter=limiter))
        one.request(golang.background(), "GET", "/")
        one.stream(golang.background(), "GET", "/", watch=True).close()
        one.close_idle_connections()
    assert limiter.waits == 1


class ClosedLimiter(FakeRateLimiter):
    """Block all callers until the limiter is opened, and record which threads wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: golang.Channel[str] = golang.Channel(100)
        self.opened: golang.Channel[None] = golang.Channel()

    def wait(self, ctx: golang.Context) -> None:
        self.waiting.send(threading.current_thread().name)
        self.opened.recv(_WAIT)


def test_requests_for_one_resource_hold_up_those_for_no_other() -> None:
    """Many requests for one resource do not delay requests for another.

    There may be thousands of them: one for each secret of a pod, or for each invalid token of a client.
    """
    limiter = ClosedLimiter()
    with testing.serve(lambda request: request.answer()) as server:
        one = rest.RESTClient(rest.Config(host=server.url, rate_limiter=limiter))

        def request(resource: str) -> golang.Thread:
            return golang.go(lambda: one.request(golang.background(), "GET", "/", resource=resource), name=resource)

        threads = [request("secrets") for _ in range(20)]
        assert limiter.waiting.recv(_WAIT) == ("secrets", True)
        threads.append(request("pods"))
        assert limiter.waiting.recv(_WAIT) == ("pods", True)
        limiter.opened.close()
        for thread in threads:
            thread.join(_WAIT)
        one.close_idle_connections()
    assert len(server.requests) == len(threads)


def test_turn_for_the_limiter_ends_with_its_context() -> None:
    limiter = ClosedLimiter()
    one = rest.RESTClient(rest.Config(host="http://127.0.0.1:1", rate_limiter=limiter))
    ctx, cancel = golang.with_cancel(golang.background())
    raised: golang.Channel[type[BaseException]] = golang.Channel(2)

    def request() -> None:
        try:
            one.request(ctx, "GET", "/")
        except Exception as err:
            raised.send(type(err))

    threads = [golang.go(request, name=name) for name in "ab"]
    limiter.waiting.recv(_WAIT)
    cancel()
    assert raised.recv(_WAIT) == (golang.Canceled, True), "who is behind the first"
    limiter.opened.close()
    assert raised.recv(_WAIT) == (golang.Canceled, True)
    for thread in threads:
        thread.join(_WAIT)


def test_limiter_wait_ends_with_its_context() -> None:
    one = rest.RESTClient(rest.Config(host="http://127.0.0.1:1", qps=0.001, burst=1))
    with pytest.raises(rest.TransportError):
        one.request(golang.background(), "GET", "/")
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        one.request(ctx, "GET", "/")
