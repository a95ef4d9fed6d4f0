"""Test the URL source against a real HTTP server."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kubelet import types as kubetypes
from kubelet.config import common, http, notes
from kubelet.config.testing import FakeManifestServer
from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.client_go.rest import testing as resttesting
from pkg.client_go.tools.record import testing as recordtesting
from pkg.golang.net import testing as nettesting
from pkg.golang.testing import frames_kept_after

NODE = "different-value"


@pytest.fixture
def server() -> Iterator[FakeManifestServer]:
    it = FakeManifestServer()
    yield it
    it.close()


class Source:
    """Run a URL source on request."""

    def __init__(self, url: str, header: dict[str, list[str]] | None = None) -> None:
        self.updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(10)
        self.recorder = recordtesting.FakeRecorder(10)
        self.source = http.SourceURL(url, header or {}, NODE, self.updates, self.recorder)

    def extract(self) -> list[str] | None:
        """Return the names of the pods that the source sends, or None if it sends nothing."""
        self.source.extract_from_url(golang.background())
        return self.sent()

    def sent(self) -> list[str] | None:
        update, ok, _ = self.updates.try_recv()
        if not ok or update is None:
            return None
        assert (update.op, update.source) == (kubetypes.SET, kubetypes.HTTP_SOURCE)
        return [p.metadata.name for p in update.pods]


def pod(name: str, image: str = "foo") -> str:
    return (
        f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},'
        f'"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}'
    )


def test_url_error_not_exist_no_update() -> None:
    source = Source("http://127.0.0.1:1/_not_found_")
    with pytest.raises(http.SourceURLError, match=r"127\.0\.0\.1"):
        source.extract()
    assert source.sent() is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"kind":"Pod","metadata":{"name":"a"}}', "Object 'apiVersion' is missing"),
        ('{"apiVersion":"v1betta2","kind":"Pod"}', "expected Pod of v1, got Pod of v1betta2"),
        (pod("a", "").replace('"name":"c",', ""), r"spec.containers\[0\].name: Required value"),
        (pod("a").replace('"c"', '"_INVALID_"'), r"spec.containers\[0\].name: Invalid value: \"_INVALID_\""),
        (pod("a").replace('"spec":{', '"spec":{"volumes":[{"name":"_INVALID_"}],'), r"spec.volumes\[0\].name"),
        (
            pod("a").replace('"spec":{', '"spec":{"volumes":[{"name":"v"},{"name":"v"}],'),
            r"spec.volumes\[1\].name: Duplicate value: \"v\"",
        ),
        ("[", "couldn't parse as single"),
        (f'{{"apiVersion":"v1","kind":"PodList","items":[{pod("a")},{pod("")}]}}', "name is needed"),
    ],
)
def test_extract_invalid_pods(server: FakeManifestServer, body: str, message: str) -> None:
    server.body = body.encode()
    source = Source(server.url)
    with pytest.raises(http.SourceURLError, match=message):
        source.extract()
    assert source.sent() is None
    event, ok, _ = source.recorder.events.try_recv()
    assert ok and event is not None and server.url in event
    assert source.extract() is None  # The source does not even decode the same bytes again.


def test_notes_tell_what_is_wrong_with_the_url_now(server: FakeManifestServer) -> None:
    noted = notes.ManifestNotes()
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(10)
    source = http.SourceURL(server.url, {}, NODE, updates, recordtesting.FakeRecorder(10), noted)

    def texts(body: str) -> list[str]:
        server.body = body.encode()
        source.run(golang.background())
        return [note.text for note in noted.all()]

    misspelt = pod("a").replace('"name":"c"', '"name":"c","comand":[]')
    for _ in range(2):  # The result must be the same when the response is not decoded again.
        assert [text.startswith(f"{server.url}: ") and "Required value" in text for text in texts(pod("a", ""))] == [
            True
        ]
    assert [text.startswith("zero-length data") for text in texts("")] == [True]
    assert ["Required value" in text for text in texts(pod("a", ""))] == [True]
    assert texts(misspelt) == []
    sent = [update for update, ok, _ in [updates.try_recv() for _ in range(9)] if ok and update is not None]
    assert noted.unknown_fields(sent[-1].pods[0].metadata.uid) == ["spec.containers[0].comand"]


def test_nothing_stays_of_an_answer_that_cannot_be_used(server: FakeManifestServer) -> None:
    server.body = b"this is no pod"
    source = Source(server.url)
    assert "_decode" not in frames_kept_after(source.extract)
    assert source.sent() is None


def test_password_in_the_url_is_told_to_nobody(server: FakeManifestServer) -> None:
    server.body = b'{"kind":"Pod","metadata":{"name":"a"}}'
    source = Source(server.url.replace("//", "//ann:secret@"))
    with pytest.raises(http.SourceURLError) as caught:
        source.extract()
    event, _, _ = source.recorder.events.try_recv()
    assert event is not None and server.url in event
    assert "secret" not in event and "secret" not in str(caught.value)


@pytest.mark.parametrize("value", ["secret\n", "secret\r\nX: y", " secret"])
def test_header_that_cannot_be_sent_is_not_told(server: FakeManifestServer, value: str) -> None:
    with pytest.raises(http.SourceURLError) as caught:
        Source(server.url, {"Authorization": [value]}).extract()
    assert "invalid header field" in str(caught.value) and "secret" not in str(caught.value)


def test_extract_pods_from_http(server: FakeManifestServer) -> None:
    source = Source(server.url)
    server.body = pod("foo").encode()
    assert source.extract() == ["foo-different-value"]
    assert source.extract() is None
    server.body = f'{{"apiVersion":"v1","kind":"PodList","items":[{pod("foo")},{pod("bar")}]}}'.encode()
    assert source.extract() == ["foo-different-value", "bar-different-value"]
    server.body = b"apiVersion: v1\nkind: Pod\nmetadata: {name: yaml}\nspec: {containers: [{name: c, image: i}]}"
    assert source.extract() == ["yaml-different-value"]


@pytest.mark.parametrize("name", ["validation.validate_pod_create", "_parse"])
def test_answer_for_which_there_was_no_memory_is_decoded_again(
    server: FakeManifestServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    source = Source(server.url)
    server.body = pod("foo").encode()
    with monkeypatch.context() as patch:
        patch.setattr(f"kubelet.config.common.{name}", fail)
        with pytest.raises(MemoryError):
            source.extract()
    assert source.extract() == ["foo-different-value"]


def test_pods_have_distinct_uids(server: FakeManifestServer) -> None:
    source = Source(server.url)
    server.body = f'{{"apiVersion":"v1","kind":"PodList","items":[{pod("foo")},{pod("bar")}]}}'.encode()
    source.source.extract_from_url(golang.background())
    update, _, _ = source.updates.try_recv()
    assert update is not None
    assert len({p.metadata.uid for p in update.pods}) == 2
    assert all(p.spec.tolerations == [] and p.spec.node_name == NODE for p in update.pods)


def test_empty_answer_counts_as_seen(server: FakeManifestServer) -> None:
    source = Source(server.url)
    with pytest.raises(http.SourceURLError, match="zero-length data received"):
        source.extract()
    assert source.sent() == []


def test_status_that_is_not_ok(server: FakeManifestServer) -> None:
    server.status, server.body = 404, b"nothing"
    with pytest.raises(http.SourceURLError, match="404 Not Found"):
        Source(server.url).extract()


def test_too_large(server: FakeManifestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "MAX_CONFIG_LENGTH", 10)
    server.body = pod("foo").encode()
    with pytest.raises(http.SourceURLError, match="longer than 10 bytes"):
        Source(server.url).extract()


def test_url_with_header(server: FakeManifestServer) -> None:
    server.body = pod("foo").encode()
    Source(server.url, {"Metadata-Flavor": ["Google"], "X-Many": ["a", "b"]}).extract()
    assert server.headers[0]["Metadata-Flavor"] == "Google"
    assert server.headers[0]["X-Many"] == "a, b"


def test_netrc_is_not_read(server: FakeManifestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet sends no password from root's .netrc to the server of the manifest URL."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login root password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    server.body = pod("foo").encode()
    Source(server.url).extract()
    assert "Authorization" not in server.headers[0]


def test_credentials_of_the_url_are_sent(server: FakeManifestServer) -> None:
    server.body = pod("foo").encode()
    Source(server.url.replace("http://", "http://me:secret@")).extract()
    assert server.headers[0]["Authorization"] == "Basic bWU6c2VjcmV0"
    assert "@" not in server.headers[0]["Host"]


Write = Callable[[socket.socket], object]


def answering(*writes: Write) -> AbstractContextManager[str]:
    """Serve the first connection with the first function, and so on, and the rest with the last; yield the URL."""

    def handle(connection: socket.socket, number: int) -> None:
        connection.recv(1 << 16)
        writes[min(number, len(writes) - 1)](connection)

    return resttesting.serve_raw(handle)


def drip(head: bytes) -> Write:
    """Return a writer that sends the head, and then single bytes for as long as the client listens."""

    def write(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            wait.sleep(golang.background(), 0.005)

    return write


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n", b""])
def test_slow_answer_has_one_deadline(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT", 0.2)
    with answering(drip(head)) as url, pytest.raises(http.SourceURLError, match=r"timed out|HTTP"):
        Source(url).extract()


def test_dead_address_of_a_name_keeps_no_other_from_its_turn(
    server: FakeManifestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead address does not use up all the time of a request.

    It may belong to a load balancer with one machine down, or to a machine whose IPv6 address is unreachable.
    """
    server.body = pod("foo").encode()
    resolver = nettesting.Resolver(monkeypatch)
    host, port = server.address
    with nettesting.silent("127.0.0.1") as dead:
        alive = (*dead[:4], (host, port))
        resolver.addresses["manifests"] = [dead, alive]
        monkeypatch.setattr(http, "TIMEOUT", 4.0)  # One address gets two of these seconds.
        assert Source(f"http://manifests:{port}/pods").extract() == ["foo-different-value"]


def test_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = nettesting.Resolver(monkeypatch)
    monkeypatch.setattr(http, "TIMEOUT", 0.2)
    try:
        with pytest.raises(http.SourceURLError, match="timed out: no complete response within"):
            Source("http://manifests.example./pods").extract()
        assert (resolver.asked, resolver.answered) == (["manifests.example."], [])
    finally:
        resolver.go_on.set()


def test_the_end_of_the_context_ends_a_fetch() -> None:
    ctx, cancel = golang.with_cancel(golang.background())

    def write(connection: socket.socket) -> None:
        cancel()
        connection.recv(1)

    with answering(write) as url, pytest.raises(golang.Canceled):
        Source(url).source.extract_from_url(ctx)


def test_compressed_answer(server: FakeManifestServer) -> None:
    server.body = gzip.compress(pod("foo").encode())
    server.extra = {"Content-Encoding": "gzip"}
    assert Source(server.url).extract() == ["foo-different-value"]
    assert server.headers[0]["Accept-Encoding"] == "gzip"


# The server of this program responds with a gzip member of 1 MiB of blanks, repeated a thousand times.
_BOMB = """
import gzip, resource, sys
from kubelet.config import http
from kubelet.config import http_test as t
from pkg import golang

server = t.FakeManifestServer()
server.status = int(sys.argv[1])
server.body = gzip.compress(b" " * (1 << 20)) * 1024
server.extra = {"Content-Encoding": "gzip", "Location": "/again"}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    t.Source(server.url).extract()
except http.SourceURLError as err:
    print(err)
server.close()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(
    ("status", "fault"), [(200, "longer than 10485760 bytes"), (302, "stopped after 10 redirects")]
)
def test_compressed_answer_stays_within_its_bound(status: int, fault: str) -> None:
    """Reading 1 GiB that was compressed to 1 MiB takes less than 64 MiB of memory."""
    command = [sys.executable, "-c", _BOMB, str(status)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    message, grown = done.stdout.splitlines()[-2:]
    assert fault in message and int(grown) < 64, done.stderr


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect(server: FakeManifestServer, status: int) -> None:
    server.body = pod("foo").encode()
    found = b"HTTP/1.1 %d Go\r\nSet-Cookie: a=b\r\nLocation: %s\r\n\r\n" % (status, server.url.encode())
    with answering(lambda connection: connection.sendall(found)) as url:
        header = {"Authorization": ["Bearer t"], "Proxy-Authorization": ["Basic p"], "X-Own": ["o"]}
        assert Source(url.replace("127.0.0.1", "localhost"), header).extract()
    assert server.headers[0]["X-Own"] == "o"
    assert not {"Authorization", "Proxy-Authorization", "Cookie"} & server.headers[0].keys()


def until_the_client_goes(answer: bytes) -> Write:
    """Return a writer that announces more data and never sends it."""

    def write(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.recv(1)

    return write


@pytest.mark.parametrize("length", [b"", b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_redirect_whose_body_never_ends(length: bytes) -> None:
    """The client closes the connection of the redirect, and only then the server has time for the next request."""
    has_gone = threading.Event()

    def redirect(connection: socket.socket) -> None:
        until_the_client_goes(b"HTTP/1.1 302 Go\r\nLocation: /again\r\n%s\r\n" % length)(connection)
        has_gone.set()

    def answer(connection: socket.socket) -> None:
        assert has_gone.wait(30)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + pod("foo").encode())

    with answering(redirect, answer) as url:
        assert Source(url).extract() == ["foo-different-value"]


def test_credentials_are_not_for_where_another_host_redirects_to(server: FakeManifestServer) -> None:
    """The client sends no credentials after a redirect to another host, even if it is redirected back."""
    server.body = pod("foo").encode()

    def redirect(location: str) -> AbstractContextManager[str]:
        answer = b"HTTP/1.1 302 Go\r\nLocation: %s\r\n\r\n" % location.encode()
        return answering(lambda connection: connection.sendall(answer))

    with redirect(server.url.replace("127.0.0.1", "localhost")) as other, redirect(other) as url:
        assert Source(url.replace("127.0.0.1", "localhost"), {"Authorization": ["Bearer t"]}).extract()
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("says_the_end", [True, False])
def test_answer_that_ends_with_its_tls_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says_the_end: bool
) -> None:
    """A body without a length is complete only if TLS says so; otherwise a cut connection could stop pods."""
    authority = resttesting.new_pair("ca")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    def answer(request: resttesting.Request) -> None:
        request.handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + pod("foo").encode())
        request.handler.close_connection = True
        if says_the_end:
            request.handler.connection.unwrap()

    with resttesting.serve(answer, resttesting.new_pair("server", authority), path=tmp_path) as served:
        source = Source(f"{served.url}/pods")
        if says_the_end:
            assert source.extract() == ["foo-different-value"]
        else:
            with pytest.raises(http.SourceURLError, match="reading the body"):
                source.extract()


def test_endless_redirects() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"
    server = answering(lambda connection: connection.sendall(answer))
    with server as url, pytest.raises(http.SourceURLError, match="stopped after 10 redirects"):
        Source(url).extract()


@pytest.mark.parametrize("location", [b"file:///etc/shadow", b"http://[", b"http://h:99999999/", b"gopher://x"])
def test_redirect_elsewhere(location: bytes) -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % location
    with answering(lambda connection: connection.sendall(answer)) as url, pytest.raises(http.SourceURLError):
        Source(url).extract()


def test_proxy_of_the_environment(server: FakeManifestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/pods"))
    monkeypatch.setenv("NO_PROXY", "")
    server.body = pod("foo").encode()
    assert Source("http://manifests.example/pods").extract() == ["foo-different-value"]
    assert server.headers[0]["Host"] == "manifests.example"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xfe",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(pod("foo").encode())[:-1],
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    ],
)
def test_nonsense(answer: bytes) -> None:
    with answering(lambda connection: connection.sendall(answer)) as url, pytest.raises(http.SourceURLError):
        Source(url).extract()


@pytest.mark.parametrize("size", [b"-1", b"0x10", b"1_0", b"+9", b"f" * 17])
def test_chunk_whose_size_is_none(size: bytes) -> None:
    """The client refuses an invalid chunk size: it would read a chunk of size -1 until memory runs out."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n" % size
    server = answering(until_the_client_goes(answer))
    with server as url, pytest.raises(http.SourceURLError, match="invalid chunk size"):
        Source(url).extract()


@pytest.mark.parametrize("head", [b"200", b"200 OK\r\n", b"200 OK\r\nContent-Le"])
def test_head_that_breaks_off_makes_no_pod_go(head: bytes) -> None:
    """A truncated head, which lacks the length of the body, does not count as an empty response."""
    with answering(lambda connection: connection.sendall(b"HTTP/1.1 " + head)) as url:
        source = Source(url)
        with pytest.raises(http.SourceURLError, match="IncompleteRead"):
            source.extract()
    assert source.sent() is None


def test_answer_comes_after_what_is_none_yet() -> None:
    answer = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + pod("foo").encode()
    with answering(lambda connection: connection.sendall(answer)) as url:
        assert Source(url).extract() == ["foo-different-value"]


def test_failures_become_quiet(server: FakeManifestServer, capfd: pytest.CaptureFixture[str]) -> None:
    server.status = 500
    source = Source(server.url)
    for _ in range(6):
        source.source.run(golang.background())
    klog.flush()
    logged = capfd.readouterr().err
    assert logged.count("Failed to read pods from URL") == 4
    assert logged.count("Dropping verbosity") == 1
    server.status, server.body = 200, pod("foo").encode()
    source.source.run(golang.background())
    klog.flush()
    assert capfd.readouterr().err.count("Successfully read pods from URL") == 1


def test_runs_until_the_context_ends(server: FakeManifestServer) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel()
    server.body = pod("one").encode()
    http.new_source_url(ctx, server.url, {}, NODE, 0.01, updates, recordtesting.FakeRecorder(1))
    first, _ = updates.recv(timeout=30)
    server.body = pod("two").encode()
    second, _ = updates.recv(timeout=30)
    assert first is not None and second is not None
    assert second.pods[0].metadata.name == "two-different-value"
    cancel()
