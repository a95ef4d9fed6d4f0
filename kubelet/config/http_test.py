"""Tests of the URL source, against a real HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kubelet import types as kubetypes
from kubelet.config import common, http
from pkg import golang, klog
from pkg.client_go.tools.record import testing as recordtesting

NODE = "different-value"


class FakeServer:
    """Answers every request alike and notes the headers it got."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.headers.append(dict(self.headers))
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/pods"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), name="fake-http")
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    it = FakeServer()
    yield it
    it.close()


class Source:
    """A URL source that is run by hand."""

    def __init__(self, url: str, header: dict[str, list[str]] | None = None) -> None:
        self.updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(10)
        self.recorder = recordtesting.FakeRecorder(10)
        self.source = http.SourceURL(url, header or {}, NODE, self.updates, self.recorder)

    def extract(self) -> list[str] | None:
        """Names of the pods it sends; None if it sends nothing."""
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
def test_extract_invalid_pods(server: FakeServer, body: str, message: str) -> None:
    server.body = body.encode()
    source = Source(server.url)
    with pytest.raises(http.SourceURLError, match=message):
        source.extract()
    assert source.sent() is None
    event, ok, _ = source.recorder.events.try_recv()
    assert ok and event is not None and server.url in event
    assert source.extract() is None  # the same bytes again are not even looked at


def test_extract_pods_from_http(server: FakeServer) -> None:
    source = Source(server.url)
    server.body = pod("foo").encode()
    assert source.extract() == ["foo-different-value"]
    assert source.extract() is None
    server.body = f'{{"apiVersion":"v1","kind":"PodList","items":[{pod("foo")},{pod("bar")}]}}'.encode()
    assert source.extract() == ["foo-different-value", "bar-different-value"]
    server.body = b"apiVersion: v1\nkind: Pod\nmetadata: {name: yaml}\nspec: {containers: [{name: c, image: i}]}"
    assert source.extract() == ["yaml-different-value"]


def test_pods_have_distinct_uids(server: FakeServer) -> None:
    source = Source(server.url)
    server.body = f'{{"apiVersion":"v1","kind":"PodList","items":[{pod("foo")},{pod("bar")}]}}'.encode()
    source.source.extract_from_url(golang.background())
    update, _, _ = source.updates.try_recv()
    assert update is not None
    assert len({p.metadata.uid for p in update.pods}) == 2
    assert all(p.spec.tolerations == [] and p.spec.node_name == NODE for p in update.pods)


def test_empty_answer_counts_as_seen(server: FakeServer) -> None:
    source = Source(server.url)
    with pytest.raises(http.SourceURLError, match="zero-length data received"):
        source.extract()
    assert source.sent() == []


def test_status_that_is_not_ok(server: FakeServer) -> None:
    server.status, server.body = 404, b"nothing"
    with pytest.raises(http.SourceURLError, match="404 Not Found"):
        Source(server.url).extract()


def test_too_large(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "MAX_CONFIG_LENGTH", 10)
    server.body = pod("foo").encode()
    with pytest.raises(http.SourceURLError, match="larger than the limit"):
        Source(server.url).extract()


def test_url_with_header(server: FakeServer) -> None:
    server.body = pod("foo").encode()
    Source(server.url, {"Metadata-Flavor": ["Google"], "X-Many": ["a", "b"]}).extract()
    assert server.headers[0]["Metadata-Flavor"] == "Google"
    assert server.headers[0]["X-Many"] == "a, b"


def test_failures_become_quiet(server: FakeServer, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_runs_until_the_context_ends(server: FakeServer) -> None:
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
