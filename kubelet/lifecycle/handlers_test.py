"""Go: pkg/kubelet/lifecycle/handlers_test.go"""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kubelet import container as kubecontainer
from kubelet import lifecycle
from kubelet.kuberuntime.testing import FakeHTTPDoer
from kubelet.lifecycle.handlers import HookError, HTTPClient, HTTPResponseError
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools import record
from pkg.util import exec as utilexec

_CTX = golang.background()
_ID = kubecontainer.ContainerID("test", "abc1234")
_CONTAINER = v1.Container(name="c", ports=[v1.ContainerPort(name="foo", container_port=8080)])
_POD = v1.Pod(
    metadata=metav1.ObjectMeta(name="podFoo", namespace="nsFoo", uid="uid"),
    spec=v1.PodSpec(containers=[_CONTAINER]),
)


class _CommandRunner:
    def __init__(self, err: Exception | None = None) -> None:
        self.commands: list[tuple[Sequence[str], float]] = []
        self.err = err

    def run_in_container(
        self, ctx: golang.Context, id: kubecontainer.ContainerID, cmd: Sequence[str], timeout: float
    ) -> bytes:
        self.commands.append((cmd, timeout))
        if self.err is not None:
            raise self.err
        return b""


class _Pods:
    def __init__(self, *ips: str) -> None:
        self.ips = list(ips)

    def get_pod(self, ctx: golang.Context, pod_uid: str) -> kubecontainer.Pod:
        return kubecontainer.Pod(id=pod_uid)

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus:
        return kubecontainer.PodStatus(id=pod.id, ips=self.ips)


class _World:
    def __init__(self, command_err: Exception | None = None, ips: tuple[str, ...] = ("10.0.0.5",)) -> None:
        self.commands = _CommandRunner(command_err)
        self.http: Any = FakeHTTPDoer()
        self.recorder = record.FakeRecorder(10)
        self.ips = ips

    def run(self, ctx: golang.Context = _CTX, **handler: Any) -> str:
        runner = lifecycle.HandlerRunner(self.http, self.commands, _Pods(*self.ips), self.recorder)
        return runner.run(ctx, _ID, _POD, _CONTAINER, v1.LifecycleHandler(**handler))

    def fault(self, ctx: golang.Context = _CTX, **handler: Any) -> str:
        with pytest.raises(HookError) as caught:
            self.run(ctx, **handler)
        return caught.value.message


def test_exec() -> None:
    world = _World()
    assert world.run(exec=v1.ExecAction(command=["ls", "-a"])) == ""
    assert world.commands.commands == [(["ls", "-a"], 0)]


def test_exec_failure_tells_what_the_command_wrote() -> None:
    err = utilexec.CodeExitError(ValueError("exit 1"), 1, b'no "a"\n')
    assert _World(err).fault(exec=v1.ExecAction(command=["ls"])).endswith(r'error: exit 1, message: "no \"a\"\n"')


def test_exec_failure() -> None:
    assert _World(RuntimeError("exit 1")).fault(exec=v1.ExecAction(command=["ls", "-a"])) == (
        'Exec lifecycle hook ([ls -a]) for Container "c" in Pod "podFoo_nsFoo(uid)" failed - error: exit 1, message: ""'
    )


@pytest.mark.parametrize(
    ("action", "url"),
    [
        (v1.HTTPGetAction(host="foo", port=8080, path="bar"), "http://foo:8080/bar"),
        (v1.HTTPGetAction(host="foo", port="foo", path="/bar?x=1"), "http://foo:8080/bar?x=1"),
        (v1.HTTPGetAction(port="80"), "http://10.0.0.5:80"),
        (v1.HTTPGetAction(port=443, scheme="HTTPS", path="/"), "https://10.0.0.5:443/"),
        (v1.HTTPGetAction(host="fd00::1", port=80, path="/"), "http://[fd00::1]:80/"),
    ],
)
def test_http_url(action: v1.HTTPGetAction, url: str) -> None:
    world = _World()
    world.run(http_get=action)
    assert [request[0] for request in world.http.requests] == [url]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, {"User-Agent": "kube-lifecycle/1.36", "Accept": "*/*"}),
        ({"user-agent": "me"}, {"User-Agent": "me", "Accept": "*/*"}),
        ({"Accept": ""}, {"User-Agent": "kube-lifecycle/1.36"}),
        ({"Host": "other"}, {"User-Agent": "kube-lifecycle/1.36", "Accept": "*/*", "Host": "other"}),
    ],
)
def test_http_headers(headers: dict[str, str], expected: dict[str, str]) -> None:
    world = _World()
    given = [v1.HTTPHeader(name=name, value=value) for name, value in headers.items()]
    world.run(http_get=v1.HTTPGetAction(port=80, http_headers=given))
    assert world.http.requests[0][1] == expected


@pytest.mark.parametrize("port", ["none", 0, 70000, ""])
def test_bad_port(port: int | str) -> None:
    fault = _World().fault(http_get=v1.HTTPGetAction(host="foo", port=port))
    assert "port" in fault.split("error:")[1]


def test_http_failure() -> None:
    world = _World()
    world.http.err = ConnectionRefusedError("connection refused")
    assert world.fault(http_get=v1.HTTPGetAction(host="foo", port=80, path="/x")) == (
        'HTTP lifecycle hook (/x) for Container "c" in Pod "podFoo_nsFoo(uid)" failed - error: connection refused'
    )


def test_http_without_pod_ip() -> None:
    fault = _World(ips=()).fault(http_get=v1.HTTPGetAction(port=80))
    assert "failed to find networking container" in fault


def test_https_falls_back_to_http_without_credentials() -> None:
    class Doer(FakeHTTPDoer):
        def do(self, ctx: golang.Context, url: str, headers: Any) -> None:
            super().do(ctx, url, headers)
            if url.startswith("https"):
                raise HTTPResponseError

    world = _World()
    world.http = Doer()
    header = v1.HTTPHeader(name="Authorization", value="secret")
    world.run(http_get=v1.HTTPGetAction(host="foo", port=80, scheme="HTTPS", http_headers=[header]))
    (first, sent), (second, resent) = world.http.requests
    assert (first, second) == ("https://foo:80", "http://foo:80")
    assert sent["Authorization"] == "secret"
    assert "Authorization" not in resent
    assert world.recorder.drain() == [
        "Warning LifecycleHTTPFallback request to HTTPS lifecycle hook foo:80 got HTTP response,"
        " retry with HTTP succeeded"
    ]


def test_sleep() -> None:
    assert _World().run(sleep=v1.SleepAction(seconds=0)) == ""


def test_interrupted_sleep() -> None:
    ctx, cancel = golang.with_cancel(_CTX)
    cancel()
    assert _World().fault(ctx, sleep=v1.SleepAction(seconds=3600)) == (
        'Sleep lifecycle hook (3600) for Container "c" in Pod "podFoo_nsFoo(uid)" failed'
        " - error: container terminated before sleep hook finished"
    )


@pytest.mark.parametrize("handler", [{}, {"tcp_socket": v1.TCPSocketAction(port=80)}])
def test_invalid_handler(handler: dict[str, Any]) -> None:
    assert _World().fault(**handler).startswith("Cannot run handler: invalid handler: ")


class _Server(http.server.BaseHTTPRequestHandler):
    status = 200
    seen: tuple[str, str | None] = ("", None)

    def do_GET(self) -> None:
        type(self).seen = (self.path, self.headers.get("X-Test"))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 302, 500])
def test_client_does_not_mind_the_status(server: str, status: int) -> None:
    _Server.status = status
    HTTPClient().do(_CTX, f"http://{server}/a/b?c=d", {"X-Test": "1"})
    assert _Server.seen == ("/a/b?c=d", "1")


def test_client_tells_plain_http_behind_https(server: str) -> None:
    with pytest.raises(HTTPResponseError):
        HTTPClient().do(_CTX, f"https://{server}/", {})


def test_client_tells_that_nobody_listens() -> None:
    with pytest.raises(OSError, match="refused"):
        HTTPClient().do(_CTX, "http://127.0.0.1:1/", {})


def test_client_ends_with_its_context() -> None:
    ctx, cancel = golang.with_cancel(_CTX)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        def accept_and_cancel() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.recv(100)
                cancel()
                connection.recv(1000)

        thread = golang.go(accept_and_cancel, name="silent-server")
        with pytest.raises((OSError, http.client.HTTPException)):
            HTTPClient().do(ctx, f"http://127.0.0.1:{port}/", {})
        thread.join(timeout=10)
