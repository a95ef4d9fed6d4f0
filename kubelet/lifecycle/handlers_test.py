"""Test hooks and small admission handlers.

Go: pkg/kubelet/lifecycle/handlers_test.go
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import io
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from framework.waiting import wait_for

from kubelet import container as kubecontainer
from kubelet import lifecycle, metrics
from kubelet.kuberuntime.testing import FakeHTTPDoer
from kubelet.lifecycle.handlers import _TURNS, HookError, HTTPClient
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import version
from pkg.apimachinery.util.runtime.testing import failing_once, raising
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.metrics import testing as metricstesting
from pkg.component_helpers import nodedeclaredfeatures as ndf
from pkg.golang import net
from pkg.golang.turn import MAX_TURNS, let_others
from pkg.probe import NoSocketError, httpclient
from pkg.probe.httpclient import HTTPRequestError, HTTPResponseError
from pkg.security import apparmor
from pkg.util import exec as utilexec

_CTX = golang.background()
_ID = kubecontainer.ContainerID("test", "abc1234")
_CONTAINER = v1.Container(name="c", ports=[v1.ContainerPort(name="foo", container_port=8080)])
_POD = v1.Pod(
    metadata=metav1.ObjectMeta(name="podFoo", namespace="nsFoo", uid=types.UID("uid")),
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
        return kubecontainer.Pod(id=types.UID(pod_uid))

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus:
        return kubecontainer.PodStatus(id=pod.id, ips=self.ips)


class _World:
    def __init__(self, command_err: Exception | None = None, ips: tuple[str, ...] = ("10.0.0.5",)) -> None:
        self.commands = _CommandRunner(command_err)
        self.http: Any = FakeHTTPDoer()
        self.recorder = FakeRecorder(10)
        self.ips = ips

    def run(self, ctx: golang.Context = _CTX, **handler: Any) -> str:
        recorder = kubecontainer.filter_event_recorder(self.recorder)
        runner = lifecycle.HandlerRunner(self.http, self.commands, _Pods(*self.ips), recorder)
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


def test_exec_failure_shows_no_more_than_10_kib() -> None:
    err = utilexec.CodeExitError(ValueError("exit 1"), 1, b"x" * 1_000_000)
    shown = _World(err).fault(exec=v1.ExecAction(command=["yes"])).split("message: ")[1]
    assert len(shown) == 10 * 1024 + 2


def test_exec_failure_with_endless_complaints() -> None:
    """A long error is cut in the message and in the log; it includes what the command writes to stderr."""
    err = utilexec.CodeExitError(ValueError(f"exited with 1: {'x' * 1_000_000}"), 1, b"")
    with pytest.raises(HookError) as caught:
        _World(err).run(exec=v1.ExecAction(command=["yes"]))
    assert len(str(caught.value)) == 10 * 1024
    assert caught.value.message.split("error: ")[1] == f'{caught.value}, message: ""'


@pytest.mark.parametrize(
    "handler",
    [
        {"exec": v1.ExecAction(command=["sh", "-c", "x" * 1_000_000])},
        {"http_get": v1.HTTPGetAction(host="h", port=80, path="x" * 1_000_000)},
    ],
)
def test_of_what_the_hook_is_the_beginning_is_shown(handler: dict[str, Any], log: io.StringIO) -> None:
    class Doer(FakeHTTPDoer):
        def do(self, ctx: golang.Context, url: str, headers: list[tuple[str, str]]) -> None:
            raise OSError("y" * 1_000_000)

    world = _World(RuntimeError("y" * 1_000_000))
    world.http = Doer()
    klog.set_verbosity(1)
    try:
        assert len(world.fault(**handler)) < 3 * 10 * 1024
    finally:
        klog.set_verbosity(0)
    assert "lifecycle hook for Container in Pod failed" in log.getvalue()
    assert len(log.getvalue()) < 3 * 10 * 1024


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
        ({"user-agent": "me"}, {"user-agent": "me", "Accept": "*/*"}),
        ({"Accept": ""}, {"User-Agent": "kube-lifecycle/1.36"}),
        ({"Host": "other"}, {"User-Agent": "kube-lifecycle/1.36", "Accept": "*/*", "Host": "other"}),
    ],
)
def test_http_headers(headers: dict[str, str], expected: dict[str, str]) -> None:
    world = _World()
    given = [v1.HTTPHeader(name=name, value=value) for name, value in headers.items()]
    world.run(http_get=v1.HTTPGetAction(port=80, http_headers=given))
    assert world.http.requests[0][1] == expected


@pytest.mark.parametrize(
    ("port", "shown"),
    [
        ("none", 'strconv.Atoi: parsing "none": invalid syntax'),
        ("", "invalid port number: 0"),
        (0, "invalid port number: 0"),
        (70000, "invalid port number: 70000"),
    ],
)
def test_bad_port(port: int | str, shown: str) -> None:
    world = _World()
    assert world.fault(http_get=v1.HTTPGetAction(host="foo", port=port)).endswith(f" error: {shown}")
    assert world.http.requests == []


def test_http_failure() -> None:
    world = _World()
    world.http.err = ConnectionRefusedError("connection refused")
    assert world.fault(http_get=v1.HTTPGetAction(host="foo", port=80, path="/x")) == (
        'HTTP lifecycle hook (/x) for Container "c" in Pod "podFoo_nsFoo(uid)" failed - error: connection refused'
    )


def test_fallback_that_fails_too_says_what_https_said() -> None:
    class Doer(FakeHTTPDoer):
        def do(self, ctx: golang.Context, url: str, headers: list[tuple[str, str]]) -> None:
            super().do(ctx, url, headers)
            raise HTTPResponseError(url) if url.startswith("https") else HTTPRequestError(url, "EOF")

    world = _World()
    world.http = Doer()
    fault = world.fault(http_get=v1.HTTPGetAction(host="foo", port=80, scheme="HTTPS"))
    assert fault.endswith('error: Get "https://foo:80": http: server gave HTTP response to HTTPS client')
    assert [url for url, _ in world.http.requests] == ["https://foo:80", "http://foo:80"]
    assert world.recorder.drain() == []


def test_http_without_pod_ip() -> None:
    fault = _World(ips=()).fault(http_get=v1.HTTPGetAction(port=80))
    assert "failed to find networking container" in fault


def test_https_falls_back_to_http_without_credentials() -> None:
    class Doer(FakeHTTPDoer):
        def do(self, ctx: golang.Context, url: str, headers: list[tuple[str, str]]) -> None:
            super().do(ctx, url, headers)
            if url.startswith("https"):
                raise HTTPResponseError(url)

    world = _World()
    world.http = Doer()
    header = v1.HTTPHeader(name="Authorization", value="secret")
    with metricstesting.moves(metrics.LIFECYCLE_HANDLER_HTTP_FALLBACKS):
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
    with metricstesting.moves(metrics.LIFECYCLE_HANDLER_SLEEP_TERMINATED):
        assert _World().fault(ctx, sleep=v1.SleepAction(seconds=3600)) == (
            'Sleep lifecycle hook (3600) for Container "c" in Pod "podFoo_nsFoo(uid)" failed'
            " - error: container terminated before sleep hook finished"
        )


@pytest.mark.parametrize(
    ("handler", "shown"),
    [({}, "{}"), ({"tcp_socket": v1.TCPSocketAction(port=80)}, '{"tcpSocket":{"port":80}}')],
)
def test_invalid_handler(handler: dict[str, Any], shown: str) -> None:
    assert _World().fault(**handler) == f"Cannot run handler: invalid handler: {shown}"


class _Server(http.server.BaseHTTPRequestHandler):
    status = 200
    location = "http://elsewhere.example.org/"
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("X-Test")))
        self.send_response(self.status)
        self.send_header("Location", self.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    _Server.status, _Server.location, _Server.seen = 200, "http://elsewhere.example.org/", []
    with http.server.HTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 302, 500])
def test_client_does_not_mind_the_status(server: str, status: int) -> None:
    _Server.status = status
    HTTPClient().do(_CTX, f"http://{server}/a b?c=d", [("X-Test", "1")])
    assert _Server.seen == [("/a%20b?c=d", "1")]


def test_client_waits_while_no_socket_is_left(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lack of sockets does not make the hook fail, which would kill the container."""
    err = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    monkeypatch.setattr("pkg.golang.net.dial_parallel", failing_once(net.dial_parallel, err))
    monkeypatch.setattr("kubelet.lifecycle.handlers._SOCKET_RETRY_PERIOD", 0.01)
    HTTPClient().do(_CTX, f"http://{server}/", [])
    assert [path for path, _ in _Server.seen] == ["/"]


def test_client_that_waits_for_a_socket_ends_with_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    err = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    monkeypatch.setattr("pkg.golang.net.dial_parallel", raising(err))
    ctx, cancel = golang.with_cancel(_CTX)
    thread = golang.go(cancel, name="cancel")
    with pytest.raises(NoSocketError):
        HTTPClient().do(ctx, "http://127.0.0.1:1/", [])
    thread.join()


def test_client_does_not_follow_what_is_no_url(server: str) -> None:
    _Server.status, _Server.location = 302, "http://[broken"
    with pytest.raises(HTTPRequestError, match=f'Get "http://{server}/": failed to parse Location header'):
        HTTPClient().do(_CTX, f"http://{server}/", [])
    assert len(_Server.seen) == 1


def test_client_follows_redirects_on_the_same_host(server: str) -> None:
    _Server.status, _Server.location = 302, "/again"
    with pytest.raises(HTTPRequestError, match=r'Get "http://127.0.0.1:[0-9]+/again": stopped after 10 redirects'):
        HTTPClient().do(_CTX, f"http://{server}/", [])
    assert [path for path, _ in _Server.seen] == ["/", *["/again"] * 9]


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (("X-Test", "one\r\nX-Other: two"), 'invalid header field value for "X-Test"'),
        (("X Test", "one"), 'invalid header field name "X Test"'),
    ],
)
def test_client_sends_no_broken_headers(server: str, header: tuple[str, str], fault: str) -> None:
    with pytest.raises(HTTPRequestError, match=f'Get "http://{server}/": net/http: {fault}'):
        HTTPClient().do(_CTX, f"http://{server}/", [header])
    assert _Server.seen == []


def test_client_tells_plain_http_behind_https(server: str) -> None:
    with pytest.raises(HTTPResponseError, match="server gave HTTP response to HTTPS client"):
        HTTPClient().do(_CTX, f"https://{server}/", [])


def test_client_tells_that_nobody_listens() -> None:
    fault = 'Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused'
    with pytest.raises(HTTPRequestError, match=fault):
        HTTPClient().do(_CTX, "http://127.0.0.1:1/", [])


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_client_ends_with_its_context(scheme: str) -> None:
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
        with pytest.raises(HTTPRequestError):
            HTTPClient().do(ctx, f"{scheme}://127.0.0.1:{port}/", [])
        thread.join(timeout=30)


def test_client_ends_with_its_context_while_it_connects() -> None:
    ctx, cancel = golang.with_cancel(_CTX)
    with contextlib.ExitStack() as stack:
        # This server accepts no connection, and its queue is full.
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        done: list[Exception] = []

        def request() -> None:
            try:
                HTTPClient().do(ctx, f"http://127.0.0.1:{address[1]}/", [])
            except HTTPRequestError as err:
                done.append(err)

        thread = golang.go(request, name="connecting")
        wait_for_connecting(address[1])
        cancel()
        thread.join(timeout=30)
    assert "dial tcp" in str(done[0])


def wait_for_connecting(port: int) -> None:
    """Wait until four sockets are connected to the port or trying to connect."""
    wanted = f"0100007F:{port:04X}"

    def sockets() -> int:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        return sum(line.split()[2] == wanted for line in lines)

    wait_for("four sockets", lambda: sockets() >= 4, describe=sockets)


def admitted(handler: lifecycle.PodAdmitHandler, pod: v1.Pod) -> lifecycle.PodAdmitResult:
    return handler.admit(lifecycle.PodAdmitAttributes(pod=pod))


def armored(profile: str, phase: str = v1.POD_PENDING) -> v1.Pod:
    context = v1.PodSecurityContext(app_armor_profile=v1.AppArmorProfile(type=profile))
    return v1.Pod(
        spec=v1.PodSpec(security_context=context, containers=[v1.Container(name="c")]),
        status=v1.PodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("profile", "phase", "message"),
    [
        ("Unconfined", v1.POD_PENDING, ""),
        ("RuntimeDefault", v1.POD_PENDING, "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
        ("RuntimeDefault", v1.POD_RUNNING, ""),
    ],
)
def test_app_armor_admit_handler(profile: str, phase: str, message: str, tmp_path: Path) -> None:
    validator = apparmor.Validator(tmp_path / "none", tmp_path / "none")
    result = admitted(lifecycle.AppArmorAdmitHandler(validator), armored(profile, phase))
    assert (result.admit, result.reason, result.message) == (not message, "AppArmor" if message else "", message)


@pytest.mark.parametrize("enabled", [True, False])
def test_pod_features_admit_handler(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features.feature_gate, "enabled", lambda key: enabled)
    requests = {"cpu": resource.must_parse("1")}
    pod = v1.Pod(spec=v1.PodSpec(resources=v1.ResourceRequirements(requests=requests)))
    handler = lifecycle.PodFeaturesAdmitHandler()
    refused = lifecycle.PodAdmitResult(
        False, "PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled"
    )
    assert admitted(handler, pod) == (lifecycle.PodAdmitResult(True) if enabled else refused)
    assert admitted(handler, v1.Pod()) == lifecycle.PodAdmitResult(True)


def needs(name: str, max_version: str | None = None) -> ndf.Feature:
    """Return a feature that pods need if they have a label with its name."""
    return ndf.Feature(
        name,
        lambda cfg: True,
        lambda pod: name in pod.metadata.labels,
        None if max_version is None else version.parse(max_version),
    )


@pytest.mark.parametrize(
    ("wanted", "declared", "message"),
    [
        pytest.param([], [], "", id="nothing needed"),
        pytest.param(["a"], ["a", "b"], "", id="what is needed is there"),
        pytest.param(["b", "a"], [], "Pod requires node features that are not available: a, b", id="it is not"),
        pytest.param(["b", "a"], ["a"], "Pod requires node features that are not available: b", id="half of it is"),
        pytest.param(["old"], [], "", id="needed, but all nodes have it"),
    ],
)
def test_declared_features_admit_handler(wanted: list[str], declared: list[str], message: str) -> None:
    framework = ndf.Framework([needs("b"), needs("a"), needs("old", "1.35.0")])
    handler = lifecycle.DeclaredFeaturesAdmitHandler(framework, lambda: declared, version.parse("v1.36.2"))
    pod = v1.Pod(metadata=metav1.ObjectMeta(labels=dict.fromkeys(wanted, "")))
    result = admitted(handler, pod)
    assert (result.admit, result.reason) == (not message, "PodFeatureUnsupported" if message else "")
    assert result.message == message


def test_feature_that_is_declared_later_counts() -> None:
    declared: list[str] = []
    framework = ndf.Framework([needs("a")])
    handler = lifecycle.DeclaredFeaturesAdmitHandler(framework, lambda: declared, version.parse("v1.36.2"))
    pod = v1.Pod(metadata=metav1.ObjectMeta(labels={"a": ""}))
    assert not admitted(handler, pod).admit
    declared.append("a")
    assert admitted(handler, pod).admit


def test_few_hooks_are_worked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few hooks work at a time, although 256 containers of a pod may be killed together."""
    free = list[int]()

    def get(ctx: golang.Context, url: str, headers: httpclient.Headers) -> None:
        free.append(_TURNS._free)
        with let_others(ctx):
            free.append(_TURNS._free)
        raise HTTPRequestError(url, "nobody is there")

    monkeypatch.setattr(httpclient, "get", get)
    with pytest.raises(HTTPRequestError):
        HTTPClient().do(_CTX, "http://127.0.0.1:1/", [])
    assert [*free, _TURNS._free] == [MAX_TURNS - 1, MAX_TURNS, MAX_TURNS]
